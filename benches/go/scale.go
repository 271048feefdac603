package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// These take turns with benches/src/scale. The sizes are those of its loads.rs; a round gives how
// many operations it did, and how long they took.
var scales = map[string]func(cpus int) (int, time.Duration){
	"scale-spawn":     scaleSpawn,
	"scale-skynet":    scaleSkynet,
	"scale-pairs":     scalePairs,
	"scale-mpmc":      scaleMpmc,
	"scale-to-one":    scaleToOne,
	"scale-mutex":     scaleMutex,
	"scale-sleepers":  scaleSleepers,
	"scale-echo":      scaleEcho,
	"scale-fork-join": scaleForkJoin,
	"scale-scan":      scaleScan,
	"scale-reads":     scaleReads,
}

// scale repeats a round for so many seconds, after one to warm up.
func scale(round func(int) (int, time.Duration), seconds string) {
	least, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		fail(err)
	}
	cpus := runtime.GOMAXPROCS(0)
	round(cpus)
	operations, took := 0, time.Duration(0)
	for {
		n, t := round(cpus)
		operations += n
		took += t
		if took.Seconds() >= least {
			break
		}
	}
	fmt.Printf("per_second=%.1f\n", float64(operations)/took.Seconds())
}

// all runs so many goroutines and waits for them.
func all(n int, run func(i int)) time.Duration {
	var done sync.WaitGroup
	start := time.Now()
	for i := range n {
		done.Add(1)
		go func() {
			defer done.Done()
			run(i)
		}()
	}
	done.Wait()
	return time.Since(start)
}

func scaleSpawn(cpus int) (int, time.Duration) {
	const batch, batches = 100, 100
	took := all(cpus, func(int) {
		spawnAndWait(make([]<-chan int, batch), batches)
	})
	return cpus * batch * batches, took
}

func scaleSkynet(int) (int, time.Duration) {
	const leaves = 100_000
	start := time.Now()
	if sum := <-startTree(0, leaves); sum != leaves*(leaves-1)/2 {
		fail(fmt.Errorf("skynet: the sum is wrong: %d", sum))
	}
	return leaves, time.Since(start)
}

func scalePairs(cpus int) (int, time.Duration) {
	start := time.Now()
	n := chanPingPong(0, 100*cpus, 100)()
	return n, time.Since(start)
}

func scaleMpmc(int) (int, time.Duration) {
	const side, capacity, messages = 4, 128, 10_000
	c := make(chan uint64, capacity)
	var senders sync.WaitGroup
	senders.Add(side)
	go func() {
		senders.Wait()
		close(c)
	}()
	took := all(2*side, func(i int) {
		if i < side {
			for n := range uint64(messages) {
				c <- n
			}
			senders.Done()
			return
		}
		for range c {
		}
	})
	return side * messages, took
}

func scaleToOne(cpus int) (int, time.Duration) {
	const capacity, messages = 128, 10_000
	c := make(chan uint64, capacity)
	senders := 4 * cpus
	start := time.Now()
	for range senders {
		go func() {
			for n := range uint64(messages) {
				c <- n
			}
		}()
	}
	for range senders * messages {
		<-c
	}
	return senders * messages, time.Since(start)
}

func scaleMutex(int) (int, time.Duration) {
	const tasks, rounds = 64, 2_000
	var lock sync.Mutex
	count := 0
	took := all(tasks, func(int) {
		for range rounds {
			lock.Lock()
			count++
			lock.Unlock()
		}
	})
	return count, took
}

func scaleSleepers(cpus int) (int, time.Duration) {
	tasks := 10_000 * cpus
	took := all(tasks, func(task int) {
		time.Sleep(time.Duration((task*7919)%100+1) * time.Millisecond)
	})
	return tasks, took
}

func scaleEcho(cpus int) (int, time.Duration) {
	const requests, bytes = 50, 64
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	defer listener.Close()
	clients := make([]net.Conn, 32*cpus)
	for i := range clients {
		if clients[i], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			fail(err)
		}
		server, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		go echo(server)
	}
	took := all(len(clients), func(i int) {
		defer clients[i].Close()
		message := make([]byte, bytes)
		for range requests {
			if _, err := clients[i].Write(message); err != nil {
				fail(err)
			}
			if _, err := io.ReadFull(clients[i], message); err != nil {
				fail(err)
			}
		}
	})
	return len(clients) * requests, took
}

const forkCut = 12

func fibAlone(n int) int {
	if n < 2 {
		return n
	}
	return fibAlone(n-1) + fibAlone(n-2)
}

// forkFib: a goroutine for each fork.
func forkFib(n int) int {
	if n <= forkCut {
		return fibAlone(n)
	}
	other := make(chan int, 1)
	go func() { other <- forkFib(n - 2) }()
	return forkFib(n-1) + <-other
}

func forks(n int) int {
	if n <= forkCut {
		return 0
	}
	return 1 + forks(n-1) + forks(n-2)
}

func scaleForkJoin(int) (int, time.Duration) {
	const n = 27
	start := time.Now()
	if fib := forkFib(n); fib != 196_418 {
		fail(fmt.Errorf("fork-join: fib is wrong: %d", fib))
	}
	return forks(n), time.Since(start)
}

func scaleScan(cpus int) (int, time.Duration) {
	const words, steps = 1 << 17, 64
	tasks := 16 * cpus
	sums := make([]uint64, tasks)
	took := all(tasks, func(task int) {
		memory := make([]uint64, words)
		for i := range memory {
			memory[i] = uint64(i ^ task)
		}
		var sum uint64
		for at := 0; at < words; at += words / steps {
			for _, word := range memory[at : at+words/steps] {
				sum += word
			}
			runtime.Gosched()
		}
		sums[task] = sum
	})
	return tasks, took
}

// scaleReads reads the file that benches/src/workloads/reads.rs has written beside this program.
func scaleReads(cpus int) (int, time.Duration) {
	const page, pages, reads = 4096, 16 << 10, 100
	program, err := os.Executable()
	if err != nil {
		fail(err)
	}
	file, err := os.Open(filepath.Join(filepath.Dir(program), "reads.data"))
	if err != nil {
		fail(err)
	}
	defer file.Close()
	tasks := 32 * cpus
	took := all(tasks, func(task int) {
		buffer := make([]byte, page)
		state := uint64(task)
		for range reads {
			// splitmix64
			state += 0x9E3779B97F4A7C15
			x := (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9
			number := (x ^ (x >> 27)) % pages
			if _, err := file.ReadAt(buffer, int64(number)*page); err != nil {
				fail(err)
			}
			if binary.LittleEndian.Uint64(buffer) != number {
				fail(fmt.Errorf("reads: another page than %d", number))
			}
		}
	})
	return tasks * reads, took
}
