// Package dbtest gives each test a database of its own, migrated, on a real
// Postgres: [New] a pool, [NewURL] an address, [NewServer] a server to break.
//
// The first use in a test process starts a throwaway Postgres that ends with the
// process; no TestMain is needed. RJE_TEST_DATABASE_URL names a cluster to use
// instead, as a superuser.
package dbtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/db"
)

const (
	startTimeout = 2 * time.Minute  // of server and template, once per process
	callTimeout  = 30 * time.Second // of a clone or a drop
	closeTimeout = 10 * time.Second // for connections a test still holds
	poolConns    = 10
)

// New returns a pool of 10 connections on a fresh migrated database. When t ends
// the pool is closed and the database dropped.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := OpenURL(t, NewURL(t))
	return pool
}

// OpenURL returns a pool of 10 connections on url, closed when t ends.
func OpenURL(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	pool, err := db.Open(ctx, db.PoolConfig{URL: url, MaxConns: poolConns})
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// NewURL returns the address of a fresh migrated database, dropped when t ends.
func NewURL(t testing.TB) string {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	name, err := c.clone()
	if err != nil {
		t.Fatalf("clone test database: %v", err)
	}
	t.Cleanup(func() {
		if err := c.drop(name); err != nil {
			t.Errorf("drop test database %s: %v", name, err)
		}
	})
	return withDatabase(c.url, name)
}

// NewEmptyURL returns the address of a database that does not exist yet, dropped
// when t ends if it does then: for tests of migrations themselves.
func NewEmptyURL(t testing.TB) string {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatalf("test database: %v", err)
	}
	name := c.nextName()
	t.Cleanup(func() {
		if err := c.drop(name); err != nil {
			t.Errorf("drop test database %s: %v", name, err)
		}
	})
	return withDatabase(c.url, name)
}

// URL returns the address pool was opened with.
func URL(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return pool.Config().ConnString()
}

// closePool fails the test that keeps a connection instead of waiting for it.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		t.Errorf("close test database: %d connections were not given back after %v",
			pool.Stat().AcquiredConns(), closeTimeout)
	}
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// ForExample is [New] for an Example, which has no t: done closes the pool and drops
// the database. It panics where New would fail the test.
func ForExample() (pool *pgxpool.Pool, done func()) {
	c, err := shared()
	must(err)
	name, err := c.clone()
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	pool, err = db.Open(ctx, db.PoolConfig{URL: withDatabase(c.url, name), MaxConns: poolConns})
	must(err)
	return pool, func() {
		pool.Close()
		must(c.drop(name))
	}
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("example database: %v", err))
	}
}
