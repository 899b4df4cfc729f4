// Package network puts a network between a test and its Postgres, to be broken:
// slow, silent, or cut at the one moment that hurts.
package network

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy is the way from 127.0.0.1:Port to a Postgres without TLS. Its methods may be
// called from several goroutines, but for those that break and mend.
type Proxy struct {
	t     testing.TB
	toxic *toxiproxy.Proxy

	mu   sync.Mutex
	cuts []*cut
}

// New opens a way to the Postgres at address, for the time of the test.
func New(t testing.TB, address string) *Proxy {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t}
	middle := p.listen(u.Host)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p.toxic = toxiproxy.NewProxy(server, "postgres", "127.0.0.1:0", middle)
	if err := p.toxic.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.toxic.Stop)
	return p
}

// listen takes the connections that come from the toxic half, message by message.
func (p *Proxy) listen(upstream string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	var open sync.Map
	p.t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(s, _ any) bool { s.(*session).close(); return true })
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.DialTimeout("tcp", upstream, 5*time.Second)
			if err != nil {
				_ = client.Close() // as a server that is down would
				continue
			}
			s := &session{p: p, client: client, server: server, prepared: map[string]string{}}
			open.Store(s, nil)
			go func() { s.up(); open.Delete(s) }()
			go s.down()
		}
	}()
	return l.Addr().String()
}

// URL is address, by way of this network.
func (p *Proxy) URL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	u.Host = p.toxic.Listen
	return u.String()
}

// Port is where it listens on 127.0.0.1.
func (p *Proxy) Port() int {
	n, err := strconv.Atoi(p.toxic.Listen[strings.LastIndexByte(p.toxic.Listen, ':')+1:])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Swallow drops every packet in both directions, and says nothing: connections stay
// open, new ones are taken and never answered.
func (p *Proxy) Swallow() { p.both("timeout", `"timeout":0`) }

// Delay makes each way take d longer.
func (p *Proxy) Delay(d time.Duration) {
	p.both("latency", fmt.Sprintf(`"latency":%d`, d.Milliseconds()))
}

// Mend takes away what Swallow and Delay have done. Connections that were swallowed
// end.
func (p *Proxy) Mend() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p.toxic.Toxics.ResetToxics(ctx)
}

func (p *Proxy) both(kind, attributes string) {
	p.t.Helper()
	for _, way := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name":"%s_%s","type":"%s","stream":"%s","toxicity":1,"attributes":{%s}}`, kind, way, kind, way, attributes)
		if _, err := p.toxic.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			p.t.Fatalf("break the network: %v", err)
		}
	}
}
