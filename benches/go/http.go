package main

import (
	"bytes"
	"net"
	"net/http"
)

// serveHTTP answers GET /plaintext with net/http, as people do.
func serveHTTP(listener net.Listener) error {
	body := []byte("Hello, World!")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /plaintext", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Server", "bench")
		w.Write(body)
	})
	return http.Serve(listener, mux)
}

const plaintext = "HTTP/1.1 200 OK\r\n" +
	"Server: bench\r\n" +
	"Content-Type: text/plain\r\n" +
	"Content-Length: 13\r\n" +
	"\r\n" +
	"Hello, World!"

const notFound = "HTTP/1.1 404 Not Found\r\n" +
	"Server: bench\r\n" +
	"Content-Length: 0\r\n" +
	"\r\n"

// serveHTTPRaw answers by hand what the servers in Rust do (benches/src/http.rs):
// keep-alive and pipelining, one buffer for each connection, the same bytes. It
// looks for the end of a request but leaves its headers unread, which httparse
// does not; this favours Go.
func serveHTTPRaw(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(conn)
	}
}

func answer(conn net.Conn) {
	defer conn.Close()
	end, request := []byte("\r\n\r\n"), []byte("GET /plaintext ")
	input, output := make([]byte, 4096), make([]byte, 0, 4096)
	filled := 0
	for filled < len(input) {
		n, err := conn.Read(input[filled:])
		if err != nil {
			return
		}
		filled += n
		rest := input[:filled]
		output = output[:0]
		for {
			at := bytes.Index(rest, end)
			if at < 0 {
				break
			}
			if bytes.HasPrefix(rest, request) {
				output = append(output, plaintext...)
			} else {
				output = append(output, notFound...)
			}
			rest = rest[at+len(end):]
		}
		filled = copy(input, rest)
		if len(output) > 0 {
			if _, err := conn.Write(output); err != nil {
				return
			}
		}
	}
}
