package main

import (
	"io"
	"net"
	"sync"
)

// The sizes of benches/src/bin/micro.rs.
const (
	streamConnections  = 4
	stream16kMessages  = 5_000
	stream512bMessages = 50_000
)

func stream16k() int { return stream(16<<10, stream16kMessages) }

func stream512b() int { return stream(512, stream512bMessages) }

// stream: on each connection one goroutine sends messages, another receives them one
// by one. TCP_NODELAY is Go's default.
func stream(bytes, messages int) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	defer listener.Close()
	var receivers sync.WaitGroup
	for range streamConnections {
		sender, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			fail(err)
		}
		receiver, err := listener.Accept()
		if err != nil {
			fail(err)
		}
		go func() {
			defer sender.Close()
			message := make([]byte, bytes)
			for range messages {
				if _, err := sender.Write(message); err != nil {
					fail(err)
				}
			}
		}()
		receivers.Add(1)
		go func() {
			defer receivers.Done()
			defer receiver.Close()
			message := make([]byte, bytes)
			for range messages {
				if _, err := io.ReadFull(receiver, message); err != nil {
					fail(err)
				}
			}
		}()
	}
	receivers.Wait()
	return streamConnections * messages
}
