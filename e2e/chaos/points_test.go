//go:build linux || darwin || freebsd

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest/moves"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/verify"
)

var (
	pointsFlag = flag.Int("points", 0, "kill a worker at each named point so many times")
	pointFlag  = flag.String("point", "", "of the points, those whose name begins so")
)

// As engine/internal/fault has them.
const (
	armedFile = "fault-armed"
	firedFile = "fault-fired"
)

// The settings of the workers here: everything within a second.
var hasty = []string{"-lease", "600ms", "-heartbeat", "150ms", "-reaper", "100ms", "-poll", "100ms", "-drain", "1s"}

// scene is how to bring a worker to a point.
type scene struct {
	// act is done to the worker while it works, until it has met its end.
	act func(*stage, *program)
	// slow points are met once in some seconds, by the leader alone.
	slow bool
	// args are more settings of the workers.
	args []string
	// before prepares the database for each death.
	before func(*stage)
	// extra kinds of jobs are needed to get there.
	extra []string
	// cut puts a [cutter] between the worker and Postgres.
	cut bool
	// partly says that the rules about what exists do not apply: retention is at work.
	partly bool
}

// scenes are the points of the engine's source that need more than work.
var scenes = map[string]scene{
	"callback.owed":     {slow: true, before: (*stage).oweNobody},
	"claim.released":    {act: (*stage).loseAnswers, cut: true},
	"claim.suspect":     {before: (*stage).loseRuns},
	"reap.open":         {before: (*stage).loseRuns},
	"reap.after":        {before: (*stage).loseRuns},
	"child.started":     {before: (*stage).loseRuns},
	"child.reported":    {before: (*stage).loseRuns},
	"child.died":        {before: (*stage).losePill},
	"live.flushed":      {extra: []string{"lengthy"}},
	"request.delivered": {act: (*stage).stopJob},
	"finish.refused":    {act: (*stage).freezeLong},
	"finish.each":       {act: (*stage).freezeLong},
	"finish.drop":       {act: (*stage).holdClaims},
	"stop.draining":     {act: (*stage).terminate},
	"stop.settled":      {act: (*stage).terminate},
	"stop.written":      {act: (*stage).terminate},
	"stop.resigned":     {act: (*stage).terminate},
	"lead.taken":        {slow: true},
	"stats.folded":      {slow: true},
	"retention.expired": {slow: true, extra: []string{"brief"}},
	"retention.pruned":  {slow: true, partly: true, args: []string{"-keep", "1s"}},
}

var pointCall = regexp.MustCompile(`fault\.Point\("([a-z.]+)"\)`)

// points are the names in the engine's source.
func points(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pointCall.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return names
}

func TestPointsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	names := points(t)
	if len(names) < 30 {
		t.Errorf("%d points, want 30: %v", len(names), names)
	}
	if once := slices.Compact(slices.Clone(names)); len(once) != len(names) {
		t.Errorf("a name stands at two points: %v", names)
	}
	for name := range scenes {
		if !slices.Contains(names, name) {
			t.Errorf("there is a scene for %s, and no such point", name)
		}
	}
}

// TestPoints kills a worker at each point again and again, lets another finish, and
// judges as after a storm.
func TestPoints(t *testing.T) {
	if *pointsFlag == 0 {
		t.Skip("give -points 20, or use make chaos-points")
	}
	build(t, "e2e/chaos/worker")
	for _, name := range points(t) {
		if !strings.HasPrefix(name, *pointFlag) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, name, scenes[name])
			began := time.Now()
			for round := range *pointsFlag {
				s.die(round)
			}
			s.finish()
			t.Logf("%d deaths at %s, %d jobs, %s", *pointsFlag, name, s.made, time.Since(began).Round(time.Millisecond))
		})
	}
}

// stage is one point's database.
type stage struct {
	t        *testing.T
	point    string
	scene    scene
	dir      string
	url      string
	pool     *pgxpool.Pool
	client   *engine.Client
	maker    *maker
	requests *journal
	events   *journal
	cutter   *cutter // nil without
	made     int
}

func newStage(t *testing.T, point string, sc scene) *stage {
	t.Helper()
	s := &stage{t: t, point: point, scene: sc, dir: journals(t, "chaos-"+point+"-"), url: dbtest.NewURL(t), maker: newMaker(1, "p")}
	s.requests, s.events = newJournal(t, filepath.Join(s.dir, requestsFile)), newJournal(t, filepath.Join(s.dir, eventsFile))
	newJournal(t, filepath.Join(s.dir, leadersFile))
	s.pool = newDatabase(t, s.url)
	client, err := engine.NewClient(engine.ClientConfig{Pool: s.pool, MaxAttempts: plenty})
	if err != nil {
		t.Fatal(err)
	}
	s.client = client
	if sc.cut {
		u, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		s.cutter = newCutter(t, u.Host, nil)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Close(ctx) // hints only
	})
	return s
}

func (s *stage) worker(name string) *program {
	address := s.url
	if s.cutter != nil {
		address = through(s.t, address, s.cutter.addr())
	}
	args := slices.Concat([]string{"-url", address, "-name", name, "-effects", filepath.Join(s.dir, effectsFile), "-concurrency", "4"}, hasty, s.scene.args) // the last one counts
	p := newProgram(s.t, s.dir, name, build(s.t, "e2e/chaos/worker"), nil, args...)
	p.note = func(h happened) { s.events.write(h) }
	return p
}

// work enqueues some jobs of every kind.
func (s *stage) work() {
	s.t.Helper()
	for _, kind := range []string{"ok", "slow", "tx", "once", "spawn", "flaky", "soon", "ok", "slow", "long", "deaf", "snooze", "tx", "doomed", "hopeless"} {
		s.enqueue(kind)
	}
	for _, kind := range s.scene.extra {
		s.enqueue(kind)
	}
}

func (s *stage) enqueue(kind string) (id string) {
	s.t.Helper()
	o := s.maker.of(kind)
	options := engine.EnqueueOptions{Queue: o.queue, MaxAttempts: o.maxAttempts, Delay: o.After}
	switch kind {
	case "soon":
		o.Type, o.After = "ok", 300*time.Millisecond
		options.Delay = o.After
	case "brief": // nobody knows its type, and it ends before anybody could
		options.ExpiresAt = time.Now().Add(time.Second)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	r := request{Door: "go", Outcome: acknowledged, Sent: time.Now()}
	done, err := s.client.Enqueue(ctx, engine.RawArgs{Type: o.Type, Payload: o.Payload}, options)
	if err != nil {
		s.t.Fatal(err)
	}
	o.ID, r.Done, r.Jobs = done.ID.String(), time.Now(), []wanted{o.wanted}
	s.requests.write(r)
	s.made++
	if kind == "spawn" {
		s.children(o)
	}
	return o.ID
}

// children are what a spawn enqueues under keys, in two calls.
func (s *stage) children(o order) {
	r := request{Door: "handler", Outcome: acknowledged, Sent: time.Now(), Done: time.Now()}
	for i := range 3 {
		ref := fmt.Sprintf("%s.%d", o.Ref, i)
		payload, err := json.Marshal(map[string]string{"ref": ref})
		if err != nil {
			s.t.Fatal(err)
		}
		r.Jobs = append(r.Jobs, wanted{Ref: ref, Type: "ok", Payload: payload, Key: ref})
		s.made++
	}
	s.requests.write(r)
}

// deathLimit is for one worker to meet its point: the slowest come once in ten
// seconds.
const deathLimit = 3 * time.Minute

// die brings a fresh worker to its end at the point.
func (s *stage) die(round int) {
	t := s.t
	t.Helper()
	s.work()
	if s.scene.before != nil {
		s.scene.before(s)
	}
	w := s.worker("w" + strconv.Itoa(round))
	count := 1
	if !s.scene.slow && s.scene.act == nil && s.scene.before == nil { // others are met once
		count += round % 3
	}
	armed, fired := filepath.Join(w.dir, armedFile), filepath.Join(w.dir, firedFile)
	if err := os.WriteFile(armed, []byte(fmt.Sprintf("%s %d\n", s.point, count)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	for began, next := time.Now(), time.Now().Add(2*time.Second); ; {
		if _, err := os.Stat(fired); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		switch {
		case time.Since(began) > deathLimit:
			t.Fatalf("round %d: no worker came to %s within %s; it ended: %s", round, s.point, deathLimit, w.lastExit())
		case !w.running() && s.scene.act == nil:
			t.Fatalf("round %d: the worker ended by itself: %s", round, w.lastExit())
		case s.scene.act != nil:
			s.scene.act(s, w)
		}
		if time.Now().After(next) { // some points need work in the line
			s.work()
			next = time.Now().Add(2 * time.Second)
		}
		time.Sleep(5 * time.Millisecond)
	}
	// If it was a child that died there, its parent dies with it.
	w.retire()
}

// loseAnswers cuts the worker's connections right after commits, a claim's sooner
// or later.
func (s *stage) loseAnswers(w *program) {
	s.busy(w)
	select {
	case s.cutter.armed <- "after":
	default:
	}
	time.Sleep(100 * time.Millisecond)
}

// losePill lets a worker die of a job.
func (s *stage) losePill() {
	s.enqueue("pill.exit")
	w := s.worker(fmt.Sprintf("lost-%d", s.made))
	if err := w.start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); w.running() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	w.retire()
}

// stopJob asks a job that runs, or waits behind others, to stop.
func (s *stage) stopJob(w *program) {
	id := s.enqueue("lengthy")
	for end := time.Now().Add(10 * time.Second); w.running() && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var state *string
		if err := s.pool.QueryRow(s.t.Context(), "SELECT state FROM job_states WHERE id = $1", id).Scan(&state); err != nil {
			s.t.Fatal(err)
		}
		if state != nil && *state == "leased" {
			break
		}
	}
	r := request{Door: "stop", Outcome: acknowledged, Sent: time.Now(), Jobs: []wanted{{ID: id}}}
	if err := s.client.RequestStop(s.t.Context(), mustID(id), engine.Actor{Name: "chaos"}); err != nil {
		r.Outcome, r.Err = refused, err.Error()
	}
	r.Done = time.Now()
	s.requests.write(r)
	time.Sleep(100 * time.Millisecond)
}

// loseRuns kills a worker in the middle of its jobs.
func (s *stage) loseRuns() {
	w := s.worker(fmt.Sprintf("lost-%d", s.made))
	if err := w.start(); err != nil {
		s.t.Fatal(err)
	}
	s.busy(w)
	w.retire()
}

// oweNobody leaves a callback of a job that is no more, which the leader looks at and
// forgets.
func (s *stage) oweNobody() {
	if _, err := s.pool.Exec(s.t.Context(), "INSERT INTO owed_callbacks (job_id) VALUES (uuid_v7())"); err != nil {
		s.t.Fatal(err)
	}
}

// freezeLong stops the worker for two leases while another one takes its jobs.
func (s *stage) freezeLong(w *program) {
	other := s.worker(w.name + "-other")
	if err := other.start(); err != nil {
		s.t.Fatal(err)
	}
	defer other.stop(5 * time.Second)
	for range 3 {
		s.enqueue("slow")
		s.enqueue("slow")
		time.Sleep(100 * time.Millisecond)
		if !w.freeze(s.t.Context(), 1300*time.Millisecond) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// holdClaims locks the worker's leases for a while, as a long CompleteTx does.
func (s *stage) holdClaims(*program) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SELECT FROM job_claims FOR KEY SHARE"); err != nil {
		s.t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
}

// terminate asks a busy worker to stop, once it has work.
func (s *stage) terminate(w *program) {
	s.busy(w)
	if _, ended, ok := w.signal(syscall.SIGTERM, false); ok {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			s.t.Fatalf("%s still ran 5s after SIGTERM", w.name)
		}
	}
}

// busy waits until the worker holds jobs.
func (s *stage) busy(w *program) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var busy bool
		if err := s.pool.QueryRow(s.t.Context(), "SELECT EXISTS (SELECT FROM job_claims AS c JOIN workers AS w ON w.id = c.worker_id WHERE w.name = $1)", w.name).
			Scan(&busy); err != nil {
			s.t.Fatal(err)
		}
		if busy {
			return
		}
	}
}

// standstill is how long no run may end while there is work left.
const standstill = 30 * time.Second

// finish lets an unharmed worker do the rest, and judges.
func (s *stage) finish() {
	t := s.t
	t.Helper()
	last := s.worker("last")
	if err := last.start(); err != nil {
		t.Fatal(err)
	}
	// Twenty deaths leave more than a hundred suspects, which run one after the other: it may take as long as it goes on.
	left, runs := -1, 0
	for end := time.Now().Add(standstill); left != 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		before := runs
		if err := s.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM job_ready) + (SELECT count(*) FROM job_scheduled)
			+ (SELECT count(*) FROM job_held) + (SELECT count(*) FROM job_claims), (SELECT count(*) FROM job_executions)`).Scan(&left, &runs); err != nil {
			t.Fatal(err)
		}
		if runs > before {
			end = time.Now().Add(standstill)
		}
	}
	if left != 0 {
		t.Errorf("%d jobs are unfinished", left)
	}
	if !last.stop(5 * time.Second) {
		t.Error("the last worker did not end within 5s of SIGTERM")
	}
	s.judge()
}

func (s *stage) judge() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := errors.Join(s.requests.broken(), s.events.broken()); err != nil {
		s.t.Fatal(err)
	}
	if s.scene.partly {
		var v verdict
		found, err := askMoves(ctx, s.pool)
		v.add("every move is allowed", found, err)
		found, err = askVerify(ctx, s.pool, verify.Options{Retention: time.Second})
		v.add("the engine's own rules hold", found, err)
		for _, err := range v.unchecked {
			s.t.Error(err)
		}
		for _, w := range v.violations {
			if w.rule == "counters_equal_history" { // it compares whole minutes, of which retention took seconds
				continue
			}
			s.t.Errorf("VIOLATION %s\n%s", w, moves.Story(ctx, s.pool, w.job))
		}
		return
	}
	v, e := check(ctx, s.dir, s.pool)
	v.tell(ctx, s.t, e)
}
