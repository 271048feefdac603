package main

import (
	"sync"
	"time"
)

// sleepers: 100,000 goroutines that sleep 5 times each, 1 to 100 ms in no order.
func sleepers() int {
	const tasks, rounds = 100_000, 5
	var done sync.WaitGroup
	for task := range tasks {
		done.Add(1)
		go func() {
			defer done.Done()
			for round := range rounds {
				time.Sleep(time.Duration((task*7919+round*31)%100+1) * time.Millisecond)
			}
		}()
	}
	done.Wait()
	return rounds * tasks
}
