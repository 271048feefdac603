package main

import (
	"fmt"
	"sync"
)

// aloneCount is in memory, as the count of the twin is: the compiler keeps a local one in a register.
var aloneCount int

// mutexAlone: a goroutine takes and gives back a lock that no other knows.
func mutexAlone() int {
	const n = 10_000_000
	var lock sync.Mutex
	before := aloneCount
	for range n {
		lock.Lock()
		aloneCount++
		lock.Unlock()
	}
	if aloneCount != before+n {
		fail(fmt.Errorf("mutex-alone: the count is wrong: %d", aloneCount-before))
	}
	return n
}

// mutexContended: 64 goroutines add one to a counter behind one lock.
func mutexContended() int {
	const tasks, rounds = 64, 20_000
	var lock sync.Mutex
	var done sync.WaitGroup
	count := 0
	for range tasks {
		done.Add(1)
		go func() {
			defer done.Done()
			for range rounds {
				lock.Lock()
				count++
				lock.Unlock()
			}
		}()
	}
	done.Wait()
	if count != tasks*rounds {
		fail(fmt.Errorf("mutex-contended: the count is wrong: %d", count))
	}
	return tasks * rounds
}
