package engine_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reliable-job-engine/reliable-job-engine/db/dbtest"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// What the examples stand on: a shop's database, and waiting for a job's end.

// shop is a fresh database with a table of orders.
func shop(statements ...string) (pool *pgxpool.Pool, done func()) {
	pool, done = dbtest.ForExample()
	for _, s := range append([]string{"CREATE TABLE orders (id bigint PRIMARY KEY, receipts int NOT NULL DEFAULT 0)"}, statements...) {
		if _, err := pool.Exec(context.Background(), s); err != nil {
			log.Panic(err)
		}
	}
	return pool, done
}

func shopClient() (client *engine.Client, done func()) {
	pool, drop := shop()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		log.Panic(err)
	}
	return client, func() {
		_ = client.Close(context.Background())
		drop()
	}
}

// runShop enqueues a receipt, runs it to its end, and prints the state it ends in.
func runShop(pool *pgxpool.Pool, work engine.WorkerFunc[SendReceipt], receipt SendReceipt) {
	workers := engine.NewWorkers()
	engine.Register(workers, work, engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: workers, PollInterval: 50 * time.Millisecond})
	if err != nil {
		log.Panic(err)
	}
	if err := e.Start(context.Background()); err != nil {
		log.Panic(err)
	}
	job, err := e.Client().Enqueue(context.Background(), receipt, engine.EnqueueOptions{})
	if err != nil {
		log.Panic(err)
	}
	fmt.Println(ended(pool, job.ID))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		log.Panic(err)
	}
}

// ended waits for a job's end and tells its state.
func ended(pool *pgxpool.Pool, id engine.ID) (state engine.State) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err := pool.QueryRow(context.Background(), "SELECT state FROM job_states WHERE id = $1", id).Scan(&state); err != nil {
			log.Panic(err)
		}
		if state.Finished() {
			break
		}
	}
	return state
}

func count(pool *pgxpool.Pool, of string) (n int) {
	if err := pool.QueryRow(context.Background(), "SELECT count(*) FROM "+of).Scan(&n); err != nil {
		log.Panic(err)
	}
	return n
}

func openShopSQL(pool *pgxpool.Pool) *sql.DB { return stdlib.OpenDB(*pool.Config().ConnConfig) }
