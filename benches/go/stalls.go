package main

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"time"
)

// stallMessage is the size of a request and of its answer.
const stallMessage = 64

// steps computes; the result keeps the compiler from leaving it out.
//
//go:noinline
func steps(n uint64) uint64 {
	x := n
	for range n {
		x = x*0x5851f42d4c957f2d + 1
	}
	return x
}

// stepsPerMicrosecond is the best of several measurements: the time is that of the wall, and the
// thread may have to wait for a CPU in one of them.
func stepsPerMicrosecond() float64 {
	const n = 500_000
	best := 0.0
	for range 50 {
		begin := time.Now()
		runtime.KeepAlive(steps(n))
		best = max(best, n/(float64(time.Since(begin).Nanoseconds())/1e3))
	}
	return best
}

// serveStalls is the server of benches/src/bin/stalls.rs: a request says in its first four bytes
// how many microseconds to compute before it is sent back.
func serveStalls(listener net.Listener) error {
	perMicrosecond := stepsPerMicrosecond()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go stall(conn, perMicrosecond)
	}
}

func stall(conn net.Conn, perMicrosecond float64) {
	defer conn.Close()
	var message [stallMessage]byte
	for {
		if _, err := io.ReadFull(conn, message[:]); err != nil {
			return
		}
		us := binary.LittleEndian.Uint32(message[:4])
		runtime.KeepAlive(steps(uint64(float64(us) * perMicrosecond)))
		if _, err := conn.Write(message[:]); err != nil {
			return
		}
	}
}
