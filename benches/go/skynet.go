package main

import "fmt"

// skynet: a tree of goroutines, ten children to each, each of which its parent
// joins through a channel of its own, as the others do through join handles.
func skynet() int {
	const leaves = 1_000_000
	if sum := <-startTree(0, leaves); sum != leaves*(leaves-1)/2 {
		fail(fmt.Errorf("skynet: the sum is wrong: %d", sum))
	}
	return leaves
}

func startTree(first, leaves int) <-chan int {
	result := make(chan int, 1)
	go func() {
		if leaves == 1 {
			result <- first
			return
		}
		var children [10]<-chan int
		for i := range children {
			children[i] = startTree(first+i*(leaves/10), leaves/10)
		}
		sum := 0
		for _, child := range children {
			sum += <-child
		}
		result <- sum
	}()
	return result
}
