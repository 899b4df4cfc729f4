package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dial opens a connection to the server, on which a test writes whatever it likes.
func (s *site) dial(within time.Duration) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() }) // the test has read what it wanted
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// heard is what a POST to a path was answered on such a connection.
func (s *site) heard(path string, res *http.Response) reply {
	s.t.Helper()
	body, _ := io.ReadAll(res.Body) // what is there is judged
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	got := reply{s.t, res.StatusCode, res.Header, string(body)}
	s.asDescribed(r, got)
	return got
}

// drip writes a text byte by byte, until the other side has had enough.
func drip(c net.Conn, text string, every time.Duration) {
	for i := range len(text) {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		time.Sleep(every)
	}
}

const postHead = "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + apiToken + "\r\nContent-Type: application/json\r\n"

// TestSlowCallersAreLetGo keeps the limits of [Server] and RequestTimeout against those
// who take their time: for the headers 10 s, and for a body as long as a request may take.
func TestSlowCallersAreLetGo(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.RequestTimeout = 500 * time.Millisecond })
	t.Run("a body", func(t *testing.T) {
		t.Parallel()
		for _, head := range []string{"Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n"} {
			c := s.dial(20 * time.Second)
			start := time.Now()
			go drip(c, postHead+head+strings.Repeat(" ", 1000), time.Millisecond)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%q: %v", head, err)
				continue
			}
			got := s.heard("/api/v1/jobs", res)
			took := time.Since(start)
			got.refused("a slow body", http.StatusRequestTimeout, "request-timeout", "")
			if took > 5*time.Second || !res.Close {
				t.Errorf("%q: after %s, and the connection may go on: %t", head, took, !res.Close)
			}
		}
	})
	t.Run("a form", func(t *testing.T) {
		t.Parallel()
		hasty := newConsole(t, func(c *Config) { c.RequestTimeout = 500 * time.Millisecond })
		const head = "POST /console/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n"
		for status, rest := range map[int]func(net.Conn){
			http.StatusRequestTimeout: func(c net.Conn) { drip(c, strings.Repeat("a", 1000), time.Millisecond*2) },
			http.StatusBadRequest:     func(c net.Conn) { drip(c, "type=email", 0); _ = c.(*net.TCPConn).CloseWrite() },
		} {
			c := hasty.dial(20 * time.Second)
			go func() { drip(c, head, 0); rest(c) }()
			if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != status {
				t.Errorf("a form that comes slowly or in part: %v, %v, want %d", res, err, status)
			}
		}
	})
	t.Run("headers", func(t *testing.T) {
		t.Parallel()
		c := s.dial(30 * time.Second)
		start := time.Now()
		go drip(c, "GET /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "+strings.Repeat("x", 1000), 50*time.Millisecond)
		answer, err := io.ReadAll(c)
		var late net.Error
		if took := time.Since(start); errors.As(err, &late) && late.Timeout() || took < 9*time.Second || took > 20*time.Second {
			t.Errorf("slow headers: let go after %s (%v), want 10 s", took, err)
		}
		if strings.Contains(string(answer), " 5") {
			t.Errorf("slow headers are answered with %s", answer)
		}
	})
	t.Run("many at once do not keep others out", func(t *testing.T) {
		t.Parallel()
		for range 200 {
			c := s.dial(30 * time.Second)
			if _, err := io.WriteString(c, postHead+"Content-Length: 1000\r\n\r\n{"); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.post(`{"type":"email"}`); got.status != http.StatusCreated {
			t.Errorf("beside 200 that do not go on: %d %s", got.status, got.body)
		}
	})
}

// TestWhatIsNoHTTP is answered with 4xx or nothing, and at once; by net/http with 501 or
// 505 if it is a kind of HTTP that it does not speak.
func TestWhatIsNoHTTP(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.RequestTimeout = time.Second })
	for name, text := range map[string]string{
		"a NUL in the path":      "GET /api/v1/jobs/\x00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"a NUL in a header":      postHead + "Idempotency-Key: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"a broken header":        postHead + "Idempotency-Key\r\n\r\n",
		"two lengths":            postHead + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"a length below nothing": postHead + "Content-Length: -1\r\n\r\n",
		"a length of 2^64":       postHead + "Content-Length: 18446744073709551616\r\n\r\n",
		"both kinds of length":   postHead + "Content-Length: 2\r\nTransfer-Encoding: gzip\r\n\r\n{}",
		"a broken chunk":         postHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"a chunk of 2^63":        postHead + "Transfer-Encoding: chunked\r\n\r\n8000000000000000\r\n{}",
		"no host":                "GET /api/v1/jobs HTTP/1.1\r\n\r\n",
		"two hosts":              "GET /api/v1/jobs HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"headers of 100 KiB":     postHead + "X-Big: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"10,000 headers":         postHead + strings.Repeat("X-Many: 1\r\n", 10_000) + "\r\n",
		"HTTP/9.9":               "GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
		"TLS":                    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"nothing but lines":      strings.Repeat("\r\n", 1000) + "\r\nx\r\n\r\n",
	} {
		c := s.dial(15 * time.Second)
		start := time.Now()
		go func() { _, _ = io.WriteString(c, text) }() // it may be cut off
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: answered after %s", name, took)
		}
		if err == nil && (res.StatusCode < 400 || res.StatusCode >= 500) && res.StatusCode != http.StatusNotImplemented && res.StatusCode != http.StatusHTTPVersionNotSupported {
			t.Errorf("%s = %d, want 4xx", name, res.StatusCode)
		}
	}
	s.nothingStored()
	s.enqueue(`{"type":"email"}`)
}

// TestAChunkedBodyWithoutEnd is cut off at the limit, however it is sliced.
func TestAChunkedBodyWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, path := range []string{"/api/v1/jobs", "/api/v1/jobs/bulk", "/api/v1/operations"} {
		for _, size := range []int{1 << 10, 64 << 10} {
			c := s.dial(20 * time.Second)
			head := strings.Replace(postHead, "/api/v1/jobs", path, 1) + "Transfer-Encoding: chunked\r\n\r\n"
			sent := make(chan int, 1)
			go func() {
				n, err := io.WriteString(c, head)
				for chunk := fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat(" ", size)); err == nil && n < 100<<20; {
					var w int
					w, err = io.WriteString(c, chunk)
					n += w
				}
				sent <- n
			}()
			start := time.Now()
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%s by %d bytes: %v", path, size, err)
				continue
			}
			s.heard(path, res).refused(path, http.StatusRequestEntityTooLarge, "payload-too-large", "")
			took := time.Since(start)
			_ = c.Close()
			if n := <-sent; n > 16<<20 || took > 5*time.Second {
				t.Errorf("%s by %d bytes: %d bytes were taken within %s", path, size, n, took)
			}
		}
	}
	s.nothingStored()
}
