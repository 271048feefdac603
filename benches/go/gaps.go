package main

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

// The probes of benches/src/bin/gaps.rs: what Go's scheduler is slow at.

const (
	gapSettle    = 200 * time.Millisecond
	gapDuration  = 2 * time.Second
	gapLoopSteps = 2_000
)

func printLatencies(latencies []time.Duration) {
	fmt.Printf("p50_us=%.1f p99_us=%.1f max_us=%.1f\n",
		quantile(latencies, 0.50), quantile(latencies, 0.99), quantile(latencies, 1))
}

// gapEcho: echo round trips of one byte beside perP loads of a kind for each P.
func gapEcho(perP int, load func()) func() {
	return func() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fail(err)
		}
		go serveEcho(listener)
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			fail(err)
		}
		for range perP * runtime.GOMAXPROCS(0) {
			load()
		}
		time.Sleep(gapSettle)
		var latencies []time.Duration
		buffer := []byte{'.'}
		for begin := time.Now(); time.Since(begin) < gapDuration; {
			start := time.Now()
			if _, err := conn.Write(buffer); err != nil {
				fail(err)
			}
			if _, err := io.ReadFull(conn, buffer); err != nil {
				fail(err)
			}
			latencies = append(latencies, time.Since(start))
		}
		printLatencies(latencies)
	}
}

func gapPair() {
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		for range there {
			back <- struct{}{}
		}
	}()
	go func() {
		for {
			there <- struct{}{}
			<-back
		}
	}()
}

func gapYields() {
	go func() {
		for n := uint64(1); ; {
			n = compute(n)
			runtime.Gosched()
		}
	}()
}

var sink atomic.Uint64

func compute(n uint64) uint64 {
	for range gapLoopSteps {
		n = n*6_364_136_223_846_793_005 + 1
	}
	if n == 0 {
		sink.Add(1)
	}
	return n
}

// gapSleeps: how late sleeps are when nothing else goes on.
func gapSleeps() {
	lengths := []time.Duration{50, 200, 800, 1_500, 2_900}
	for _, us := range lengths {
		late := gapLate(us*time.Microsecond, gapDuration/time.Duration(len(lengths)))
		fmt.Printf("late_%d_p50_us=%.1f late_%d_p99_us=%.1f ",
			us, quantile(late, 0.50), us, quantile(late, 0.99))
	}
	fmt.Println()
}

func gapLate(length, duration time.Duration) []time.Duration {
	var latencies []time.Duration
	for begin := time.Now(); time.Since(begin) < duration; {
		start := time.Now()
		time.Sleep(length)
		latencies = append(latencies, time.Since(start)-length)
	}
	return latencies
}

// gapWakeElsewhere: from a wake to the run on another P, while the waker stays busy.
func gapWakeElsewhere() {
	const wakes, staysBusy = 2_000, 500 * time.Microsecond
	times, done := make(chan time.Time, 1), make(chan []time.Duration)
	go func() {
		var latencies []time.Duration
		for sent := range times {
			latencies = append(latencies, time.Since(sent))
		}
		done <- latencies
	}()
	time.Sleep(gapSettle)
	go func() {
		for range wakes {
			now := time.Now()
			times <- now
			for time.Since(now) < staysBusy {
			}
		}
		close(times)
	}()
	printLatencies(<-done)
}

// gapLockedPeer: there and back over channels, to a peer that has locked its thread.
func gapLockedPeer() {
	const n = 50_000
	there, back := make(chan uint64), make(chan uint64)
	go func() {
		runtime.LockOSThread()
		for n := range there {
			back <- n
		}
	}()
	roundTrips := func(n uint64) {
		for i := range n {
			there <- i
			<-back
		}
	}
	roundTrips(n / 10)
	cpu, start := cpuTime(), time.Now()
	roundTrips(n)
	elapsed := time.Since(start)
	cpu = cpuTime() - cpu
	fmt.Printf("ns=%.1f cpu_ns=%.1f\n",
		float64(elapsed.Nanoseconds())/n, float64(cpu.Nanoseconds())/n)
}

// gapSleepHogs: how late sleeps of 1 ms are beside perP goroutines for each P that only
// compute.
func gapSleepHogs(perP int) func() {
	return func() {
		for range perP * runtime.GOMAXPROCS(0) {
			go func() {
				for n := uint64(1); ; {
					n = compute(n)
				}
			}()
		}
		time.Sleep(gapSettle)
		printLatencies(gapLate(time.Millisecond, gapDuration))
	}
}

// gapForkDepth is the depth of the trees of gapSleepForks; its upper levels are forked, as a goroutine
// for each of the lower ones would cost more than the leaves.
const (
	gapForkDepth = 10
	gapForkTo    = 4
)

func gapFork(depth int, n uint64) uint64 {
	if depth == 0 {
		return compute(n)
	}
	if depth <= gapForkTo {
		return gapFork(depth-1, n) ^ gapFork(depth-1, n)
	}
	b := make(chan uint64, 1)
	go func() { b <- gapFork(depth-1, n) }()
	return gapFork(depth-1, n) ^ <-b
}

// gapSleepForks: how late sleeps of 1 ms are beside perP goroutines for each P that compute by
// fork and join.
func gapSleepForks(perP int) func() {
	return func() {
		for range perP * runtime.GOMAXPROCS(0) {
			go func() {
				for n := uint64(1); ; {
					n ^= gapFork(gapForkDepth, n)
				}
			}()
		}
		time.Sleep(gapSettle)
		printLatencies(gapLate(time.Millisecond, gapDuration))
	}
}
