package web

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
)

var (
	stormClients = flag.Int("storm.clients", 16, "clients of TestAnIdempotencyStorm")
	stormKeys    = flag.Int("storm.keys", 100, "keys that each of them uses")
)

// told is what a client was answered for a key.
type told struct {
	key     int
	content string // what it sent
	made    bool   // "this made a job"
	reused  bool   // "the key has other content"
	id      string
	sql     bool
}

// TestAnIdempotencyStorm has every client use every key, over HTTP and in transactions of
// its own; one call in ten has other content, and one in ten is rolled back. Each key
// makes one job, every client is told that one, and nothing is told of what never was.
func TestAnIdempotencyStorm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	producers := dbtest.OpenURL(t, dbtest.URL(t, s.pool))
	seed := rand.Uint64()
	t.Logf("%d clients, %d keys, seed %d", *stormClients, *stormKeys, seed)
	heard := make([][]told, *stormClients)
	rolledBack := make([]int, *stormClients)
	var all sync.WaitGroup
	for i := range heard {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for _, key := range r.Perm(*stormKeys) {
				content := "first"
				if r.IntN(10) == 0 {
					content = "other"
				}
				switch r.IntN(10) {
				case 0:
					s.produce(producers, key, content, false, r)
					rolledBack[i]++
				case 1:
					heard[i] = append(heard[i], s.produce(producers, key, content, true, r))
				default:
					heard[i] = append(heard[i], s.askUntilTold(key, content))
				}
			}
		})
	}
	all.Wait()
	back := 0
	for _, n := range rolledBack {
		back += n
	}
	s.agree(heard)
	if back == 0 {
		t.Error("nothing was rolled back: this test looks at the wrong thing")
	}
	s.breaksNoRule()
}

func stormPayload(key int, content string) string {
	return fmt.Sprintf(`{"key":%d,"content":%q}`, key, content)
}

// askUntilTold enqueues over HTTP, and again if another call holds the key.
func (s *site) askUntilTold(key int, content string) told {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := s.post(`{"type":"email","payload":`+stormPayload(key, content)+`}`, "Idempotency-Key", fmt.Sprintf("storm-%d", key))
		is := told{key: key, content: content, id: got.text("id")}
		switch got.status {
		case http.StatusCreated, http.StatusOK:
			is.made = got.status == http.StatusCreated
			if (got.header.Get("Idempotency-Replayed") == "true") == is.made {
				s.t.Errorf("key %d: %d with Idempotency-Replayed %q", key, got.status, got.header.Get("Idempotency-Replayed"))
			}
			return is
		case http.StatusUnprocessableEntity:
			got.refused("other content", http.StatusUnprocessableEntity, "idempotency-key-reused", "")
			is.reused, is.id = true, got.text("job_id")
			return is
		}
		if got.text("code") != "idempotency-key-in-flight" || got.header.Get("Retry-After") == "" || time.Now().After(deadline) {
			s.t.Errorf("key %d: %d %s", key, got.status, got.body)
			return is
		}
	}
}

// produce enqueues within a transaction, as a product in another language does, and
// commits or thinks better of it.
func (s *site) produce(pool *pgxpool.Pool, key int, content string, commit bool, r *rand.Rand) told {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		is := told{key: key, content: content, sql: true}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, `SELECT enqueue_job(type => 'email', payload => $1::jsonb, idempotency_key => $2)::text`,
				stormPayload(key, content), fmt.Sprintf("storm-%d", key)).Scan(&is.id)
			if err != nil {
				return err
			}
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			if !commit {
				return errThoughtBetter
			}
			return nil
		})
		var pg *pgconn.PgError
		switch {
		case err == nil, errors.Is(err, errThoughtBetter):
			return is
		case errors.As(err, &pg) && pg.Code == "23505": // unique_violation, whose detail is the holder
			is.reused, is.id = true, pg.Detail
			return is
		case errors.As(err, &pg) && pg.Code == "55P03": // lock_not_available: in flight
			continue
		}
		s.t.Errorf("key %d by SQL: %v", key, err)
		return is
	}
}

var errThoughtBetter = errors.New("rolled back")

// agree holds what clients were told against the jobs that there are.
func (s *site) agree(heard [][]told) {
	s.t.Helper()
	type job struct{ id, content string }
	jobs := map[int]job{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT id::text, (payload->>'key')::int, payload->>'content' FROM jobs`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var j job
		var key int
		if err := rows.Scan(&j.id, &key, &j.content); err != nil {
			s.t.Fatal(err)
		}
		if twin, ok := jobs[key]; ok {
			s.t.Errorf("key %d has the jobs %s and %s", key, twin.id, j.id)
		}
		jobs[key] = j
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	made, bySQL := map[int]int{}, map[int]bool{}
	for _, list := range heard {
		for _, is := range list {
			j := jobs[is.key]
			if is.id != j.id || is.reused != (is.content != j.content) {
				s.t.Errorf("key %d: told %+v, but its job is %+v", is.key, is, j)
			}
			if is.made {
				made[is.key]++
			}
			// SQL tells a holder and a new job alike.
			bySQL[is.key] = bySQL[is.key] || is.sql && !is.reused
		}
	}
	if len(jobs) != *stormKeys {
		s.t.Errorf("%d jobs for %d keys", len(jobs), *stormKeys)
	}
	for key := range jobs {
		if made[key] > 1 || made[key] == 0 && !bySQL[key] {
			s.t.Errorf("key %d was told to have made %d jobs", key, made[key])
		}
	}
	if n := s.count(`SELECT count(*) FROM idempotency_keys AS k JOIN jobs AS j ON j.id = k.job_id WHERE k.scope = 'enqueue'`); n != *stormKeys {
		s.t.Errorf("%d keys have a job, want %d", n, *stormKeys)
	}
}
