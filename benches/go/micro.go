package main

import (
	"fmt"
	"syscall"
	"time"
)

// micro runs a workload once to warm up, then again and again for a second at
// least, and prints wall time and CPU time of the process per operation.
func micro(workload func() int) {
	const duration = time.Second
	workload()
	cpu, start := cpuTime(), time.Now()
	operations := 0
	for time.Since(start) < duration {
		operations += workload()
	}
	elapsed := time.Since(start)
	cpu = cpuTime() - cpu
	fmt.Printf("ns=%.1f cpu_ns=%.1f\n",
		float64(elapsed.Nanoseconds())/float64(operations),
		float64(cpu.Nanoseconds())/float64(operations))
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
