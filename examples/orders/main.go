// Command orders is a small shop on the job engine. It places an order and enqueues its
// receipt in one transaction, so that neither is there without the other; its worker
// writes each receipt once, whatever dies in between.
//
//	jobctl migrate up                                      # the engine's tables
//	orders -url "$DATABASE_URL" setup                      # the shop's own
//	orders -url "$DATABASE_URL" place customer@example.com
//	orders -url "$DATABASE_URL" work                       # until Ctrl-C
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

const tables = `
CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL);
CREATE TABLE IF NOT EXISTS receipts (order_id bigint NOT NULL REFERENCES orders, email text NOT NULL)`

// sendReceipt is the job: its fields are the payload.
type sendReceipt struct {
	OrderID int64  `json:"order_id"`
	Email   string `json:"email"`
}

func (sendReceipt) JobType() string { return "send_receipt" }

func main() {
	url := flag.String("url", "postgres://127.0.0.1/shop", "address of the database")
	lease := flag.Duration("lease", 30*time.Second, "how long a dead worker's jobs wait")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *lease, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, lease time.Duration, args []string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	switch {
	case len(args) == 1 && args[0] == "setup":
		_, err := pool.Exec(ctx, tables)
		return err
	case len(args) == 2 && args[0] == "place":
		client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
		if err != nil {
			return err
		}
		id, err := place(ctx, pool, client, args[1])
		if err == nil {
			fmt.Println("order", id)
		}
		return err
	case len(args) == 1 && args[0] == "work":
		return work(ctx, pool, lease)
	}
	return errors.New("usage: orders [-url ADDRESS] [-lease DURATION] setup | place EMAIL | work")
}

// place writes an order and the job for its receipt: both are there once it returns, or
// neither is.
func place(ctx context.Context, pool *pgxpool.Pool, jobs engine.Enqueuer, email string) (id int64, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "INSERT INTO orders (email) VALUES ($1) RETURNING id", email).Scan(&id); err != nil {
			return err
		}
		_, err := jobs.EnqueueTx(ctx, tx, sendReceipt{OrderID: id, Email: email}, engine.EnqueueOptions{Queue: "mail"})
		return err
	})
	return id, err
}

// receipts is the handler. The receipt and the job's end commit together: a worker that
// dies before has written nothing, and after it the job does not run again.
func receipts(pool *pgxpool.Pool) engine.WorkerFunc[sendReceipt] {
	return func(ctx context.Context, job *engine.Job[sendReceipt]) error {
		if job.Args.Email == "" {
			return engine.Permanent(errors.New("the order has no address"))
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO receipts (order_id, email) VALUES ($1, $2)", job.Args.OrderID, job.Args.Email); err != nil {
				return err
			}
			job.Log().Info("receipt written", "order", job.Args.OrderID)
			return engine.CompleteTx(ctx, tx)
		})
	}
}

// work runs receipts until ctx ends, and then lets those under way finish.
func work(ctx context.Context, pool *pgxpool.Pool, lease time.Duration) error {
	workers := engine.NewWorkers()
	engine.Register(workers, receipts(pool), engine.TypeOptions{Timeout: 10 * time.Second})
	e, err := engine.New(engine.Config{Pool: pool, Workers: workers, Queues: []string{"mail"}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		LeaseDuration: lease, HeartbeatInterval: lease / 3, ReaperInterval: lease / 6})
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return e.Stop(stopping)
}
