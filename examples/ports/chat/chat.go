// A chat server: what a client writes, all clients get.
//
//	chat HOST:PORT
//
// The first line of a client is its name. A client that reads too slowly, or is silent for too
// long, is sent away.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"time"
)

const (
	backlog = 16
	silence = 5 * time.Minute
)

type client struct {
	id   int
	name string
	out  chan string
}

type room struct {
	join  chan client
	leave chan client
	say   chan string
}

// run has the clients to itself, so that there is no lock. Only it sends to their channels and
// closes them.
func (r room) run() {
	clients := map[int]client{}
	tell := func(line string) {
		for id, c := range clients {
			select {
			case c.out <- line:
			default: // reads too slowly
				close(c.out)
				delete(clients, id)
			}
		}
	}
	for {
		select {
		case c := <-r.join:
			clients[c.id] = c
			tell("* " + c.name + " is here")
		case c := <-r.leave:
			if _, ok := clients[c.id]; ok {
				close(c.out)
				delete(clients, c.id)
			}
			tell("* " + c.name + " has left")
		case line := <-r.say:
			tell(line)
		}
	}
}

func (r room) serve(id int, conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	conn.SetReadDeadline(time.Now().Add(silence))
	if !lines.Scan() {
		return
	}
	c := client{id, lines.Text(), make(chan string, backlog)}
	go func() {
		defer conn.Close()
		for line := range c.out {
			if _, err := fmt.Fprintln(conn, line); err != nil {
				return
			}
		}
	}()
	r.join <- c
	defer func() { r.leave <- c }()
	for conn.SetReadDeadline(time.Now().Add(silence)) == nil && lines.Scan() {
		r.say <- c.name + ": " + lines.Text()
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chat HOST:PORT")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	r := room{make(chan client), make(chan client), make(chan string)}
	go r.run()
	for id := 0; ; id++ {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go r.serve(id, conn)
	}
}
