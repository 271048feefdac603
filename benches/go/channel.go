package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// chanPingPong: pairs of goroutines that send each other a number and back.
func chanPingPong(capacity, pairs, roundTrips int) func() int {
	return func() int {
		var done sync.WaitGroup
		for range pairs {
			there, back := make(chan uint64, capacity), make(chan uint64, capacity)
			go func() {
				for n := range there {
					back <- n
				}
			}()
			done.Add(1)
			go func() {
				defer done.Done()
				for n := range uint64(roundTrips) {
					there <- n
					if <-back != n {
						panic("another number came back")
					}
				}
				close(there)
			}()
		}
		done.Wait()
		return pairs * roundTrips
	}
}

// chanMpmc: 4 senders and 4 receivers on one channel that holds 128 messages.
func chanMpmc() int {
	const side, capacity, messages = 4, 128, 100_000
	c := make(chan uint64, capacity)
	var senders, receivers sync.WaitGroup
	for range side {
		senders.Add(1)
		go func() {
			defer senders.Done()
			for n := range uint64(messages) {
				c <- n
			}
		}()
		receivers.Add(1)
		go func() {
			defer receivers.Done()
			for range c {
			}
		}()
	}
	senders.Wait()
	close(c)
	receivers.Wait()
	return side * messages
}

// closeParked is benches/src/bin/close_parked.rs.
func closeParked() {
	const (
		tasks  = 1_000_000
		poll   = time.Millisecond
		settle = 200 * time.Millisecond
	)
	var begun, ended atomic.Int64
	before := statusBytes("VmRSS:")
	c := make(chan struct{})
	for range tasks {
		go func() {
			begun.Add(1)
			<-c
			ended.Add(1)
		}()
	}
	for begun.Load() < tasks {
		time.Sleep(poll)
	}
	time.Sleep(settle)
	parked := statusBytes("VmRSS:")
	start := time.Now()
	close(c)
	for ended.Load() < tasks {
		time.Sleep(poll)
	}
	took := time.Since(start)
	fmt.Printf("bytes=%d close_ns=%.1f tasks=%d\n",
		(parked-before)/tasks, float64(took.Nanoseconds())/tasks, tasks)
}
