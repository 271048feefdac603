package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// latencyBusy is benches/src/bin/latency_busy.rs: round trips of one byte, on an
// idle runtime and while four pairs of goroutines per P wake each other.
func latencyBusy() {
	const (
		pairsPerWorker = 4
		settle         = 200 * time.Millisecond
		duration       = 2 * time.Second
	)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	go serveEcho(listener)
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		fail(err)
	}
	time.Sleep(settle)
	idle := roundTrips(conn, duration)

	for range runtime.GOMAXPROCS(0) * pairsPerWorker {
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
	time.Sleep(settle)
	busy := roundTrips(conn, duration)
	fmt.Printf("idle_p50_us=%.1f idle_p99_us=%.1f busy_p50_us=%.1f busy_p99_us=%.1f\n",
		quantile(idle, 0.50), quantile(idle, 0.99), quantile(busy, 0.50), quantile(busy, 0.99))
}

func roundTrips(conn net.Conn, duration time.Duration) []time.Duration {
	var latencies []time.Duration
	buffer := []byte{'.'}
	for begin := time.Now(); time.Since(begin) < duration; {
		start := time.Now()
		if _, err := conn.Write(buffer); err != nil {
			fail(err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			fail(err)
		}
		latencies = append(latencies, time.Since(start))
	}
	return latencies
}

// quantile is in µs; it sorts.
func quantile(latencies []time.Duration, q float64) float64 {
	slices.Sort(latencies)
	at := min(int(q*float64(len(latencies))), len(latencies)-1)
	return float64(latencies[at].Nanoseconds()) / 1e3
}

const parkedTasks, spawnedTasks = 100_000, 20_000

// parkedMemory is `parked_memory parked`.
func parkedMemory() {
	var begun atomic.Int64
	before := residentBytes()
	for range parkedTasks {
		go func() {
			begun.Add(1)
			select {}
		}()
	}
	for begun.Load() < parkedTasks {
		time.Sleep(5 * time.Millisecond)
	}
	reportMemory(before, parkedTasks)
}

// spawnedMemory is `parked_memory spawned`; goroutines that Go began all the
// same, as the main one took long, have ended by then and are not counted.
func spawnedMemory() {
	runtime.GOMAXPROCS(1)
	var begun atomic.Int64
	before := residentBytes()
	for range spawnedTasks {
		go func() { begun.Add(1) }()
	}
	reportMemory(before, spawnedTasks-int(begun.Load()))
}

func reportMemory(before, tasks int) {
	fmt.Printf("bytes=%d tasks=%d\n", (residentBytes()-before)/max(tasks, 1), tasks)
}

func residentBytes() int {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		fail(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			var kib int
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				fail(err)
			}
			return kib * 1024
		}
	}
	fail(fmt.Errorf("no VmRSS in /proc/self/status"))
	return 0
}

// sleepOvershoot is benches/src/bin/sleep_overshoot.rs.
func sleepOvershoot() {
	const nap, naps = 50 * time.Microsecond, 2_000
	latencies := make([]time.Duration, naps)
	for i := range latencies {
		start := time.Now()
		time.Sleep(nap)
		latencies[i] = time.Since(start) - nap
	}
	fmt.Printf("p50_us=%.1f p99_us=%.1f\n", quantile(latencies, 0.50), quantile(latencies, 0.99))
}
