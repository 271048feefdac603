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

// parkedMemory is `parked_memory parked`, of as many tasks as a second argument says.
func parkedMemory() {
	tasks := parkedTasks
	if len(os.Args) > 2 {
		if _, err := fmt.Sscan(os.Args[2], &tasks); err != nil {
			fail(err)
		}
	}
	var begun atomic.Int64
	before := memoryNow()
	for range tasks {
		go func() {
			begun.Add(1)
			select {}
		}()
	}
	for begun.Load() < int64(tasks) {
		time.Sleep(5 * time.Millisecond)
	}
	reportMemory(before, tasks)
}

// spawnedMemory is `parked_memory spawned`; goroutines that Go began all the
// same, as the main one took long, have ended by then and are not counted.
func spawnedMemory() {
	runtime.GOMAXPROCS(1)
	var begun atomic.Int64
	before := memoryNow()
	for range spawnedTasks {
		go func() { begun.Add(1) }()
	}
	reportMemory(before, spawnedTasks-int(begun.Load()))
}

// memory is what the process takes.
type memory struct{ resident, pageTables int }

func memoryNow() memory {
	return memory{statusBytes("VmRSS:"), statusBytes("VmPTE:")}
}

func reportMemory(before memory, tasks int) {
	now := memoryNow()
	bytes := now.resident - before.resident
	withTables := bytes + now.pageTables - before.pageTables
	n := max(tasks, 1)
	fmt.Printf("bytes=%d with_tables=%d tasks=%d\n", bytes/n, withTables/n, tasks)
}

func statusBytes(name string) int {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		fail(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			var kib int
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				fail(err)
			}
			return kib * 1024
		}
	}
	fail(fmt.Errorf("no %s in /proc/self/status", name))
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
