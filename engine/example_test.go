package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"

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
	pool, done := shop() // pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	defer done()

	workers := engine.NewWorkers()
	engine.Register(workers, engine.WorkerFunc[SendReceipt](func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		job.Log().Info("sending", "order", job.Args.OrderID)
		if job.Args.To == "" {
			return engine.Permanent(errUnknownAddress) // no retry can mend it
		}
		fmt.Println("receipt for order", job.Args.OrderID, "to", job.Args.To)
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
	fmt.Println(ended(pool, job.ID))

	stopping, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := e.Stop(stopping); err != nil {
		log.Print(err)
	}
	// Output:
	// receipt for order 8123 to customer@example.com
	// completed
}

func ExampleNewClient() {
	pool, done := shop()
	defer done()
	// A program that enqueues and runs nothing needs no engine.
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close(context.Background()) }()
	job, err := client.Enqueue(context.Background(), SendReceipt{OrderID: 8123}, engine.EnqueueOptions{Delay: time.Hour})
	fmt.Println(job.Type, job.Queue, job.State, err)
	// Output: send_receipt default pending <nil>
}

func ExampleClient_Enqueue() {
	client, done := shopClient()
	defer done()
	o := engine.EnqueueOptions{Queue: "mail", IdempotencyKey: "receipt-8123"}
	for _, to := range []string{"a@example.com", "a@example.com", "b@example.com"} {
		job, err := client.Enqueue(context.Background(), SendReceipt{OrderID: 8123, To: to}, o)
		var reused *engine.KeyReusedError
		fmt.Println(job.Duplicate, errors.As(err, &reused))
	}
	_, err := client.Enqueue(context.Background(), SendReceipt{}, engine.EnqueueOptions{MaxAttempts: 101})
	fmt.Println(err)
	// Output:
	// false false
	// true false
	// false true
	// max_attempts: 1 to 100
}

// The job exists if the order does, and only then.
func ExampleClient_EnqueueTx() {
	pool, done := shop()
	defer done()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	place := func(ctx context.Context, orderID int64, stock int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", orderID); err != nil {
				return err
			}
			if _, err := client.EnqueueTx(ctx, tx, SendReceipt{OrderID: orderID}, engine.EnqueueOptions{}); err != nil {
				return err
			}
			if stock == 0 {
				return errors.New("sold out")
			}
			return nil
		})
	}
	fmt.Println(place(context.Background(), 8123, 1), place(context.Background(), 8124, 0))
	fmt.Println(count(pool, "orders"), "order,", count(pool, "jobs"), "job")
	// Output:
	// <nil> sold out
	// 1 order, 1 job
}

// The same with database/sql, whatever the driver.
func ExampleClient_EnqueueSQLTx() {
	pool, done := shop()
	defer done()
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	db := openShopSQL(pool) // sql.Open("pgx", os.Getenv("DATABASE_URL"))
	defer func() { _ = db.Close() }()

	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", 8123); err != nil {
		log.Fatal(err)
	}
	if _, err := client.EnqueueSQLTx(ctx, tx, SendReceipt{OrderID: 8123}, engine.EnqueueOptions{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tx.Commit(), count(pool, "jobs"))
	// Output: <nil> 1
}

func ExampleClient_EnqueueMany() {
	client, done := shopClient()
	defer done()
	items := []engine.EnqueueItem{
		{Args: SendReceipt{OrderID: 1}},
		{Args: SendReceipt{OrderID: 2}, Options: engine.EnqueueOptions{Queue: "mail"}},
	}
	jobs, err := client.EnqueueMany(context.Background(), items)
	fmt.Println(len(jobs), err)
	items[1].Options.Queue = "no such name!"
	jobs, err = client.EnqueueMany(context.Background(), items) // all or none
	fmt.Println(len(jobs), err)
	// Output:
	// 2 <nil>
	// 0 items.1.queue: 1 to 100 of A-Z a-z 0-9 _ . : -, starting with a letter, digit or _
}

// One job at a time stands for a customer, whoever asks for it.
func ExampleUnique() {
	client, done := shopClient()
	defer done()
	o := engine.EnqueueOptions{Unique: engine.Unique{Key: "customer-42"}}
	first, err := client.Enqueue(context.Background(), SendReceipt{OrderID: 1}, o)
	if err != nil {
		log.Fatal(err)
	}
	second, err := client.Enqueue(context.Background(), SendReceipt{OrderID: 2}, o)
	fmt.Println(second.Unique, second.ID == first.ID, err)
	o.Unique.OnConflict = engine.ConflictReject
	_, err = client.Enqueue(context.Background(), SendReceipt{OrderID: 3}, o)
	var conflict *engine.UniqueConflictError
	fmt.Println(errors.As(err, &conflict) && conflict.Holder == first.ID)
	// Output:
	// held true <nil>
	// true
}

// The update and the job's end commit together: a worker whose lease was lost gets
// ErrLeaseLost, and its update is rolled back.
func ExampleCompleteTx() {
	pool, done := shop("INSERT INTO orders (id) VALUES (8123)")
	defer done()
	runShop(pool, func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET receipts = receipts + 1 WHERE id = $1", job.Args.OrderID); err != nil {
				return err
			}
			return engine.CompleteTx(ctx, tx)
		})
	}, SendReceipt{OrderID: 8123})
	fmt.Println(count(pool, "orders WHERE receipts = 1"))
	// Output:
	// completed
	// 1
}

// A run that fails after the effect runs again, and finds it done.
func ExampleOnce() {
	pool, done := shop("INSERT INTO orders (id) VALUES (8123)")
	defer done()
	runShop(pool, func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			ran, err := engine.Once(ctx, tx, fmt.Sprint("charge-", job.Args.OrderID), func(ctx context.Context) error {
				_, err := tx.Exec(ctx, "UPDATE orders SET receipts = receipts + 1 WHERE id = $1", job.Args.OrderID)
				return err
			})
			fmt.Println("attempt", job.Attempt, "charged:", ran)
			return err
		})
		if err == nil && job.Attempt == 1 {
			return engine.RetryAfter(errors.New("the mail server is down"), 0)
		}
		return err
	}, SendReceipt{OrderID: 8123})
	fmt.Println(count(pool, "orders WHERE receipts = 1"))
	// Output:
	// attempt 1 charged: true
	// attempt 2 charged: false
	// completed
	// 1
}

func ExamplePermanent() {
	pool, done := shop()
	defer done()
	runShop(pool, func(context.Context, *engine.Job[SendReceipt]) error {
		return engine.Permanent(errUnknownAddress) // a dead letter at once
	}, SendReceipt{OrderID: 8123})
	// Output: dead_letter
}

func ExampleRetryAfter() {
	pool, done := shop()
	defer done()
	call := func(attempt int) (wait time.Duration, err error) {
		if attempt == 1 {
			return 20 * time.Millisecond, errors.New("429 too many requests")
		}
		return 0, nil
	}
	runShop(pool, func(_ context.Context, job *engine.Job[SendReceipt]) error {
		wait, err := call(job.Attempt)
		fmt.Println("attempt", job.Attempt, err)
		return engine.RetryAfter(err, wait) // nil stays nil
	}, SendReceipt{OrderID: 8123})
	// Output:
	// attempt 1 429 too many requests
	// attempt 2 <nil>
	// completed
}

func ExampleSnooze() {
	pool, done := shop()
	defer done()
	ready := false
	runShop(pool, func(_ context.Context, job *engine.Job[SendReceipt]) error {
		if !ready {
			ready = true
			return engine.Snooze(10 * time.Millisecond)
		}
		fmt.Println("attempt", job.Attempt) // no attempt was used
		return nil
	}, SendReceipt{OrderID: 8123})
	// Output:
	// attempt 1
	// completed
}

// Every dead letter of one type is replayed, as one act with one row in the audit trail.
func ExampleClient_Operate() {
	pool, done := shop()
	defer done()
	runShop(pool, func(context.Context, *engine.Job[SendReceipt]) error { return engine.Permanent(errUnknownAddress) }, SendReceipt{OrderID: 8123})
	client, err := engine.NewClient(engine.ClientConfig{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	spec := engine.OperationSpec{Action: engine.OperateReplay, Select: engine.Selection{Type: "send_receipt"}, Pace: engine.PaceCanary}
	preview, err := client.PreviewOperation(context.Background(), spec)
	if err != nil {
		log.Fatal(err)
	}
	spec.Expected = preview.Total
	operation, err := client.Operate(context.Background(), spec, engine.Actor{Name: "ann", Reason: "the addresses are mended"})
	fmt.Println(operation.Total, operation.State, err)
	// Output:
	// dead_letter
	// 1 running <nil>
}

func ExampleEngine_Stop() {
	pool, done := shop()
	defer done()
	workers := engine.NewWorkers()
	engine.Register(workers, engine.WorkerFunc[SendReceipt](func(context.Context, *engine.Job[SendReceipt]) error { return nil }), engine.TypeOptions{})
	e, err := engine.New(engine.Config{Pool: pool, Workers: workers, Queues: []string{"mail"}, Concurrency: 4})
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Status().Ready())
	// At SIGTERM: handlers may go on for 30 s, then their jobs are handed back.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println(e.Stop(ctx), e.Status().Ready())
	// Output:
	// true
	// <nil> false
}
