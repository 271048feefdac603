// The workloads of windlass-benches in Go, with the standard library only.
//
// Each prints one line of key=value pairs, under the keys of its twin in Rust
// (benches/src/bin); the servers print the address they listen on.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
)

const usage = `usage: gobench WORKLOAD
       gobench SERVER [ADDRESS]
       gobench scale-WORKLOAD SECONDS

workloads: yield spawn-one spawn-batch ping-pong skynet stream-16k stream-512
           sleepers sleepers-10k deadlines mutex-alone mutex-contended
           chan-unbuffered chan-buffered chan-pairs chan-mpmc
           close-parked latency-busy parked-memory spawned-memory sleep-overshoot
           gap-echo-pairs-2 gap-echo-pairs-4 gap-echo-yields-2 gap-echo-yields-4
           gap-sleeps gap-wake-elsewhere gap-locked-peer
           gap-sleep-hogs-1 gap-sleep-hogs-2 gap-sleep-hogs-4
           gap-sleep-forks-1 gap-sleep-forks-2
servers:   echo http http-raw stalls

WINDLASS_BENCH_WORKERS sets GOMAXPROCS.
`

// These take turns with benches/src/bin/micro.rs.
var micros = map[string]func() (operations int){
	"yield":       yields,
	"spawn-one":   spawnOne,
	"spawn-batch": spawnBatch,
	"ping-pong":   pingPong,
	"skynet":      skynet,
	"stream-16k":  stream16k,
	"stream-512":  stream512b,
	"deadlines":   deadlines,

	"sleepers":     sleepers(100_000),
	"sleepers-10k": sleepers(10_000),

	"chan-unbuffered": chanPingPong(0, 1, 200_000),
	"chan-buffered":   chanPingPong(1, 1, 200_000),
	"chan-pairs":      chanPingPong(0, 1_000, 200),
	"chan-mpmc":       chanMpmc,
	"mutex-alone":     mutexAlone,
	"mutex-contended": mutexContended,
}

var programs = map[string]func(){
	"close-parked":    closeParked,
	"latency-busy":    latencyBusy,
	"parked-memory":   parkedMemory,
	"spawned-memory":  spawnedMemory,
	"sleep-overshoot": sleepOvershoot,

	"gap-echo-pairs-2":   gapEcho(2, gapPair),
	"gap-echo-pairs-4":   gapEcho(4, gapPair),
	"gap-echo-yields-2":  gapEcho(2, gapYields),
	"gap-echo-yields-4":  gapEcho(4, gapYields),
	"gap-sleeps":         gapSleeps,
	"gap-wake-elsewhere": gapWakeElsewhere,
	"gap-locked-peer":    gapLockedPeer,
	"gap-sleep-hogs-1":   gapSleepHogs(1),
	"gap-sleep-hogs-2":   gapSleepHogs(2),
	"gap-sleep-hogs-4":   gapSleepHogs(4),
	"gap-sleep-forks-1":  gapSleepForks(1),
	"gap-sleep-forks-2":  gapSleepForks(2),
}

var servers = map[string]func(net.Listener) error{
	"echo":     serveEcho,
	"stalls":   serveStalls,
	"http":     serveHTTP,
	"http-raw": serveHTTPRaw,
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if text, set := os.LookupEnv("WINDLASS_BENCH_WORKERS"); set {
		workers, err := strconv.Atoi(text)
		if err != nil || workers < 1 {
			fail(fmt.Errorf("WINDLASS_BENCH_WORKERS must be a positive number, not %q", text))
		}
		runtime.GOMAXPROCS(workers)
	}
	name := os.Args[1]
	if workload, ok := micros[name]; ok {
		micro(workload)
	} else if program, ok := programs[name]; ok {
		program()
	} else if round, ok := scales[name]; ok && len(os.Args) > 2 {
		scale(round, os.Args[2])
	} else if serve, ok := servers[name]; ok {
		address := "127.0.0.1:0"
		if len(os.Args) > 2 {
			address = os.Args[2]
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			fail(err)
		}
		fmt.Println(listener.Addr())
		fail(serve(listener))
	} else {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "gobench:", err)
	os.Exit(1)
}
