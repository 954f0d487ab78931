// A web server and its clients, goroutines of one process; prints a checksum for each round.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const clients = 8

func answer(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	io.Copy(sum, r.Body)
	time.Sleep(time.Millisecond)
	fmt.Fprintf(w, "%s %x\n", r.URL, sum.Sum(nil))
	w.Write(bytes.Repeat([]byte("x"), len(r.URL.Path)*3000))
}

func ask(address string, round, client int) [32]byte {
	body := bytes.Repeat([]byte{byte(client)}, 1+round*977%60000)
	reply, err := http.Post(fmt.Sprintf("http://%s/%d/%d", address, round, client), "text/plain", bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	got, err := io.ReadAll(reply.Body)
	if err != nil {
		panic(err)
	}
	return sha256.Sum256(got)
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(answer))
	total := sha256.New()
	for round := 0; round < rounds; round++ {
		var all sync.WaitGroup
		var sums [clients][32]byte
		for client := 0; client < clients; client++ {
			all.Add(1)
			go func(client int) {
				defer all.Done()
				sums[client] = ask(listener.Addr().String(), round, client)
			}(client)
		}
		all.Wait()
		for _, sum := range sums {
			total.Write(sum[:])
		}
		fmt.Printf("%d %x\n", round, total.Sum(nil))
	}
}
