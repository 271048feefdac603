package main

import (
	"fmt"
	"sync"
)

// mutexAlone: a goroutine takes and gives back a lock that no other knows.
func mutexAlone() int {
	const n = 10_000_000
	var lock sync.Mutex
	count := 0
	for range n {
		lock.Lock()
		count++
		lock.Unlock()
	}
	if count != n {
		fail(fmt.Errorf("mutex-alone: the count is wrong: %d", count))
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
