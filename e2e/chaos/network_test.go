//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// network is what stands between one side's programs and Postgres: toxiproxy for
// spells of trouble, then a [cutter] for single commits.
type network struct {
	cutter *cutter
	proxy  *toxiproxy.Proxy
	mu     sync.Mutex // of the spells: one at a time
}

func newNetwork(t testing.TB, name, postgres string, told func(how string)) *network {
	t.Helper()
	c := newCutter(t, postgres, told)
	quiet := zerolog.New(io.Discard)
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), quiet), name, "127.0.0.1:0", c.addr())
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &network{cutter: c, proxy: p}
}

func (n *network) addr() string { return n.proxy.Listen }

// reset ends every connection that says something, for a while: Postgres's
// answers do not come through.
func (n *network) reset(ctx context.Context, d time.Duration) error {
	return n.spell(ctx, d, `{"name":"spell","type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`)
}

func (n *network) slow(ctx context.Context, d time.Duration) error {
	return n.spell(ctx, d, `{"name":"spell","type":"latency","stream":"downstream","attributes":{"latency":30,"jitter":25}}`)
}

func (n *network) spell(ctx context.Context, d time.Duration, toxic string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return n.proxy.Toxics.RemoveToxic(context.WithoutCancel(ctx), "spell")
}

func TestANetworkResetsAndHeals(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	n := newNetwork(t, "test", echo.Addr().String(), nil)
	hello := func() error {
		conn, err := net.Dial("tcp", n.addr())
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		// As a Postgres client begins: a packet with its size.
		if _, err := conn.Write([]byte{0, 0, 0, 8, 1, 2, 3, 4}); err != nil {
			return err
		}
		_, err = io.ReadFull(conn, make([]byte, 8))
		return err
	}
	if err := hello(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.reset(t.Context(), 300*time.Millisecond) }()
	time.Sleep(100 * time.Millisecond)
	if hello() == nil {
		t.Error("an answer came through while connections are reset")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := hello(); err != nil {
		t.Errorf("after the spell: %v", err)
	}
}
