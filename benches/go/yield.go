package main

import (
	"runtime"
	"sync"
)

// yields: 1,000 goroutines that do nothing but give way to each other.
func yields() int {
	const tasks, rounds = 1_000, 1_000
	var done sync.WaitGroup
	for range tasks {
		done.Add(1)
		go func() {
			defer done.Done()
			for range rounds {
				runtime.Gosched()
			}
		}()
	}
	done.Wait()
	return rounds * tasks
}
