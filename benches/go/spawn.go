package main

// The result comes back over a channel: Go's nearest to a join handle. It is made
// for each task, as a join handle is, and holds one value, so no task waits.
func spawn(i int) <-chan int {
	result := make(chan int, 1)
	go func() { result <- i }()
	return result
}

// spawnOne starts a goroutine and waits for it, again and again.
func spawnOne() int {
	const n = 100_000
	for i := range n {
		<-spawn(i)
	}
	return n
}

// spawnAndWait starts a goroutine for each of the results and waits for them all, again and again.
func spawnAndWait(results []<-chan int, batches int) {
	for range batches {
		for i := range results {
			results[i] = spawn(i)
		}
		for _, result := range results {
			<-result
		}
	}
}

// spawnBatch starts 1,000 goroutines and waits for them all, again and again.
func spawnBatch() int {
	const batch, batches = 1_000, 200
	spawnAndWait(make([]<-chan int, batch), batches)
	return batches * batch
}
