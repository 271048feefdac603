package main

// pingPong: two goroutines that wake each other in turn. Go has no public park,
// and an unbuffered channel is its nearest: a send to a waiting receiver is a wake.
func pingPong() int {
	const n = 200_000
	there, back := make(chan struct{}), make(chan struct{})
	go func() {
		for range there {
			back <- struct{}{}
		}
	}()
	for range n {
		there <- struct{}{}
		<-back
	}
	close(there)
	return n
}
