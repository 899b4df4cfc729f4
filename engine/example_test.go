package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// SendReceipt is a job: its fields are the payload.
type SendReceipt struct {
	OrderID int64  `json:"order_id"`
	To      string `json:"to"`
}

func (SendReceipt) JobType() string { return "send_receipt" }

var errUnknownAddress = errors.New("unknown address")

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@127.0.0.1/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	workers := engine.NewWorkers()
	engine.Register(workers, engine.WorkerFunc[SendReceipt](func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		job.Log().Info("sending", "order", job.Args.OrderID)
		if job.Args.To == "" {
			return engine.Permanent(errUnknownAddress) // no retry can mend it
		}
		return nil
	}), engine.TypeOptions{Timeout: 10 * time.Second})

	e, err := engine.New(engine.Config{Pool: pool, Workers: workers})
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Start(ctx); err != nil {
		log.Fatal(err)
	}
	job, err := e.Client().Enqueue(ctx, SendReceipt{OrderID: 8123, To: "customer@example.com"}, engine.EnqueueOptions{
		Queue: "mail", Priority: engine.PriorityHigh.Ptr(), IdempotencyKey: "receipt-8123",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.ID, job.Duplicate)

	stopping, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := e.Stop(stopping); err != nil {
		log.Print(err)
	}
}

func ExampleClient_EnqueueTx() {
	var client *engine.Client
	var pool *pgxpool.Pool
	place := func(ctx context.Context, orderID int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", orderID); err != nil {
				return err
			}
			// The job exists if the order does, and only then.
			_, err := client.EnqueueTx(ctx, tx, SendReceipt{OrderID: orderID}, engine.EnqueueOptions{})
			return err
		})
	}
	_ = place
}

func ExampleCompleteTx() {
	var pool *pgxpool.Pool
	_ = engine.WorkerFunc[SendReceipt](func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET receipt_sent = true WHERE id = $1", job.Args.OrderID); err != nil {
				return err
			}
			// The update and the job's end commit together. A worker whose lease was
			// lost gets ErrLeaseLost here, and its update is rolled back.
			return engine.CompleteTx(ctx, tx)
		})
	})
}

func ExampleOnce() {
	var pool *pgxpool.Pool
	_ = engine.WorkerFunc[SendReceipt](func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := engine.Once(ctx, tx, fmt.Sprint("charge-", job.Args.OrderID), func(ctx context.Context) error {
				_, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance - 1 WHERE order_id = $1", job.Args.OrderID)
				return err
			})
			return err
		})
	})
}

func ExampleSnooze() {
	ready := func() bool { return false }
	_ = engine.WorkerFunc[SendReceipt](func(context.Context, *engine.Job[SendReceipt]) error {
		if !ready() {
			return engine.Snooze(time.Minute) // no attempt is used
		}
		return nil
	})
}

func ExampleRetryAfter() {
	call := func() (wait time.Duration, err error) { return 30 * time.Second, errors.New("429 too many requests") }
	_ = engine.WorkerFunc[SendReceipt](func(context.Context, *engine.Job[SendReceipt]) error {
		wait, err := call()
		return engine.RetryAfter(err, wait) // nil stays nil
	})
}
