package main

import "net"

// serveEcho sends back what comes: a goroutine and a buffer for each connection.
// TCP_NODELAY is Go's default.
func serveEcho(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go echo(conn)
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}
