package web

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

var (
	hostileRequests = flag.Int("hostile.requests", 3_000, "how many requests TestHostileRequests sends; make check sends 20000, make hostile 200000")
	hostileSeed     = flag.Uint64("hostile.seed", 0, "their seed; 0 draws one, which the test prints")
)

const (
	hostileLimit = time.Second // for an answer
	hostileHeap  = 256 << 20   // bytes above what was there before
)

// hostileSite is a server under hostile requests, and what it promised meanwhile.
type hostileSite struct {
	*site
	seed                     uint64
	running, done, operation string

	mu       sync.Mutex
	waiting  []string        // the latest of them, to act on
	promised map[string]bool // ids that were answered with 201
	again    []hostileRequest
}

// TestHostileRequests sends what no well-meaning caller does to every route of the API. No
// answer is a 5xx, each is as the API's document says, within a second and in bounded
// memory; and afterwards every job that was acknowledged is in one place.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	h := newHostileSite(t)
	t.Logf("%d requests, seed %d: again with -hostile.seed %d -hostile.requests %d", *hostileRequests, h.seed, h.seed, *hostileRequests)
	peak := h.watchHeap()
	walked := h.sendAll(*hostileRequests)
	for _, r := range h.again {
		h.askAlone(r)
	}
	if rise := peak(); rise > hostileHeap {
		t.Errorf("the heap rose by %d MiB, want at most %d", rise>>20, hostileHeap>>20)
	}
	if len(walked) < 35 {
		t.Errorf("only %d routes walked: %v", len(walked), slices.Sorted(maps.Keys(walked)))
	}
	h.keptItsPromises()
	if log := h.log.String(); log != "" {
		t.Errorf("the server logged errors: %.2000s", log)
	}
	if n := h.enqueue(`{"type":"email"}`); n == "" {
		t.Error("a plain job does not get in afterwards")
	}
}

func newHostileSite(t *testing.T) *hostileSite {
	t.Helper()
	h := &hostileSite{seed: *hostileSeed, promised: map[string]bool{}}
	if h.seed == 0 {
		h.seed = rand.Uint64()
	}
	errorsOnly := &logBuffer{}
	h.site = newConsole(t, func(c *Config) {
		c.Token, c.Log = apiToken, slog.New(slog.NewJSONHandler(errorsOnly, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	h.log = errorsOnly
	h.exec("INSERT INTO workers (name, hostname, pid, version, queues, types, slots, lease_ms) VALUES ('w1', 'h', 1, 'v1', '{mail}', '{email}', 4, 30000)")
	h.exec(`INSERT INTO queues (name) VALUES ('mail') ON CONFLICT DO NOTHING`)
	h.deadIn("mail", 5)
	h.operation = h.ask("POST", operationsPath, `{"action":"replay","queue":"mail","pace":"rate","per_minute":1}`).text("id")
	for range 20 {
		h.waiting = append(h.waiting, h.enqueue(`{"type":"email","queue":"mail","delay_seconds":3600}`))
	}
	h.running, h.done = h.enqueue(`{"type":"email"}`), h.enqueue(`{"type":"email"}`)
	for i, id := range []string{h.running, h.done} {
		h.run(id, int64(h.count("SELECT nextval('job_claims_id_seq')")))
		if i == 1 {
			h.end(id, int64(h.count("SELECT max(id) FROM job_claims")), 1)
		}
	}
	// The runs above have no engine that counts them.
	h.exec(`INSERT INTO job_stats_deltas (queue, type, outcome, n, run_ms) SELECT j.queue, j.type, e.outcome, count(*), 0
		FROM job_executions AS e JOIN jobs AS j ON j.id = e.job_id GROUP BY 1, 2, 3`)
	return h
}

// id is that of something there is, as a rule.
func (h *hostileSite) id(r *rand.Rand, route string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch way := r.IntN(20); {
	case strings.Contains(route, "/operations/"):
		return h.operation
	case way == 0:
		return h.running
	case way == 1:
		return h.done
	}
	return h.waiting[r.IntN(len(h.waiting))]
}

// sendAll sends n requests over four connections and returns the routes they went to.
func (h *hostileSite) sendAll(n int) map[string]bool {
	type route struct{ method, path string }
	var routes []route
	walked := map[string]bool{}
	for _, r := range h.echo.Routes() {
		if !strings.HasPrefix(r.Path, "/console") && r.Method != "echo_route_not_found" && r.Method != http.MethodConnect {
			routes = append(routes, route{r.Method, r.Path})
			if routeBodies[r.Method+" "+r.Path] != nil { // there is more to spoil
				routes = append(routes, route{r.Method, r.Path}, route{r.Method, r.Path})
			}
			walked[r.Method+" "+r.Path] = true
		}
	}
	slices.SortFunc(routes, func(a, b route) int { return strings.Compare(a.method+a.path, b.method+b.path) })
	if n < len(routes) {
		h.t.Fatalf("%d requests do not reach the %d routes", n, len(routes))
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !h.t.Failed(); i = int(next.Add(1)) - 1 {
				m := &hostileMaker{Rand: rand.New(rand.NewPCG(h.seed, uint64(i))), id: h.id}
				to := routes[i%len(routes)]
				r := m.request(i, to.method, to.path)
				got, took, err := h.try(r)
				switch {
				case err != nil || took > hostileLimit || got.status == http.StatusServiceUnavailable:
					h.mu.Lock()
					h.again = append(h.again, r)
					h.mu.Unlock()
				default:
					h.judge(r, got)
				}
			}
		})
	}
	all.Wait()
	return walked
}

// askAlone asks again what may have been late for the sake of others on this machine, or
// was cut off while a body was on its way that nobody wanted to read.
func (h *hostileSite) askAlone(r hostileRequest) {
	var got reply
	var took time.Duration
	var err error
	for range 3 {
		if got, took, err = h.try(r); err == nil && took <= hostileLimit {
			h.judge(r, got)
			return
		}
	}
	h.t.Errorf("%v: %d after %s, %v", r, got.status, took, err)
}

// oneRead hides a body's length, so that it is sent in chunks.
type oneRead struct{ io.Reader }

// try sends a request and reads the whole answer.
func (h *hostileSite) try(r hostileRequest) (got reply, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var body io.Reader
	if r.body != "" {
		if body = strings.NewReader(r.body); r.chunked {
			body = oneRead{body}
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, h.url+r.path, body)
	if err != nil {
		h.t.Errorf("%v: %v", r, err)
		return reply{}, 0, nil
	}
	for i := 0; i < len(r.headers); i += 2 {
		if r.headers[i+1] == "" {
			req.Header.Del(r.headers[i])
		} else {
			req.Header.Set(r.headers[i], r.headers[i+1])
		}
	}
	start := time.Now()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return reply{}, time.Since(start), err
	}
	b, err := io.ReadAll(res.Body)
	took = time.Since(start)
	if closed := res.Body.Close(); err == nil {
		err = closed
	}
	got = reply{h.t, res.StatusCode, res.Header, string(b)}
	if err == nil {
		h.asDescribed(req, got)
	}
	return got, took, err
}

// judge says whether an answer is right, and keeps what it promises.
func (h *hostileSite) judge(r hostileRequest, got reply) {
	if r.want != nil && !slices.Contains(r.want, got.status) {
		h.t.Errorf("%v: %d %.300s, want one of %v", r, got.status, got.body, r.want)
		return
	}
	var body struct {
		Code   string
		Status int
		ID     string
		Jobs   []struct{ ID string }
	}
	if strings.Contains(got.header.Get("Content-Type"), "json") && r.method != http.MethodHead {
		if err := json.Unmarshal([]byte(got.body), &body); err != nil && !strings.HasPrefix(got.body, "[") {
			body.Code = "no JSON"
		}
	}
	switch known := codes[body.Code]; {
	case got.status >= 500:
		h.t.Errorf("%v: %d %.600s\n%s", r, got.status, got.body, h.log.String())
	case got.status >= 400 && r.method != http.MethodHead:
		if got.header.Get("Content-Type") != "application/problem+json" || known.status != got.status || body.Status != got.status || got.header.Get("X-Request-Id") == "" {
			h.t.Errorf("%v: %d %v %.300s, want a problem with a known code", r, got.status, got.header, got.body)
		}
	case got.status == http.StatusCreated:
		ids := []string{body.ID}
		if strings.HasSuffix(r.route, "/bulk") {
			ids = ids[:0]
			for _, j := range body.Jobs {
				ids = append(ids, j.ID)
			}
		}
		h.promise(r, ids)
	}
}

func (h *hostileSite) promise(r hostileRequest, ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if len(id) != 36 {
			h.t.Errorf("%v: 201 with the id %q", r, id)
			return
		}
		h.promised[id] = true
		h.waiting = append(h.waiting, id)
	}
	h.waiting = h.waiting[max(0, len(h.waiting)-50):]
}

// keptItsPromises looks for every job that was acknowledged.
func (h *hostileSite) keptItsPromises() {
	h.t.Helper()
	ids := make([]uuid.UUID, 0, len(h.promised))
	for id := range h.promised {
		ids = append(ids, uuid.MustParse(id))
	}
	// A job is in a line, a schedule, a lease or among the dead, or its last run ended it.
	const places = `(SELECT count(*) FROM job_ready AS p WHERE p.job_id = j.id) + (SELECT count(*) FROM job_scheduled AS p WHERE p.job_id = j.id) +
		(SELECT count(*) FROM job_claims AS p WHERE j.id = ANY(p.job_ids)) + (SELECT count(*) FROM dead_letter_jobs AS p WHERE p.job_id = j.id) +
		(SELECT count(*) FROM job_executions AS p WHERE p.job_id = j.id AND p.outcome IN (1, 5))`
	if n := h.count(`SELECT count(*) FROM jobs AS j WHERE j.id = ANY($1) AND `+places+` = 1`, ids); n != len(ids) || n == 0 {
		h.t.Errorf("of %d acknowledged jobs %d are in exactly one place", len(ids), n)
	}
	h.breaksNoRule()
	h.t.Logf("%d jobs acknowledged, %d answers asked for again, seed %d", len(ids), len(h.again), h.seed)
}

// breaksNoRule asks the rules of jobctl verify.
func (s *site) breaksNoRule() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	report, err := verify.Run(ctx, s.pool, verify.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, res := range report.Results {
		if res.Verdict != verify.OK {
			s.t.Errorf("verify: %s is %s: %v", res.Rule.Name, res.Verdict, res.Offenders)
		}
	}
}

// watchHeap measures the live heap until the function it returns is called, which
// tells by how much it rose.
func (h *hostileSite) watchHeap() (rise func() int64) {
	for _, large := range []func() string{deepValue, wideValue, largeValue, packedBomb} {
		_ = large() // what the test itself holds
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	before, most := heap(), int64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				most = max(most, heap())
			}
		}
	}()
	return func() int64 { close(stop); <-stopped; return most - before }
}
