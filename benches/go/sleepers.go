package main

import (
	"sync"
	"time"
)

// sleepers: so many goroutines that sleep 5 times each, 1 to 100 ms in no order.
func sleepers(tasks int) func() int {
	return func() int { return sleep(tasks) }
}

func sleep(tasks int) int {
	const rounds = 5
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
