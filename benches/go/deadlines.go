package main

import (
	"sync"
	"time"
)

// deadlines: 500 pairs of goroutines that wake each other in turn; each wait for the
// other has a timer of an hour, which is stopped.
func deadlines() int {
	const pairs, n = 500, 400
	receive := func(c <-chan struct{}) {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		select {
		case <-c:
		case <-timer.C:
			panic("an hour has passed")
		}
	}
	var done sync.WaitGroup
	for range pairs {
		done.Add(1)
		go func() {
			defer done.Done()
			there, back := make(chan struct{}), make(chan struct{})
			go func() {
				for range n {
					receive(there)
					back <- struct{}{}
				}
			}()
			for range n {
				there <- struct{}{}
				receive(back)
			}
		}()
	}
	done.Wait()
	return pairs * n
}
