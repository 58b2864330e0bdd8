// Lists all volumes by the memory that they take, the greatest first.
//
//	go run usage.go /run/memlane/api.sock
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sort"
)

// volume has the fields of a volume that are shown here; the daemon sends more.
type volume struct {
	Name         string `json:"name"`
	WrittenBytes uint64 `json:"written_bytes"`
	RAMBytes     uint64 `json:"ram_bytes"`
}

func volumes(socket string) ([]volume, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	answer, err := client.Get("http://memlane/v1/volumes")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the daemon answered %s", answer.Status)
	}
	var found []volume
	err = json.NewDecoder(answer.Body).Decode(&found)
	return found, err
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: usage SOCKET")
	}
	found, err := volumes(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].RAMBytes > found[j].RAMBytes })
	for _, it := range found {
		fmt.Printf("%-20s %12d bytes written %12d bytes of RAM\n", it.Name, it.WrittenBytes, it.RAMBytes)
	}
}
