package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/enginetest"
)

// SendReceipt is a job of the shop.
type SendReceipt struct {
	OrderID int64  `json:"order_id"`
	To      string `json:"to"`
}

func (SendReceipt) JobType() string { return "send_receipt" }

// sendReceipt is its handler.
func sendReceipt(_ context.Context, job *engine.Job[SendReceipt]) error {
	if job.Args.To == "" {
		return engine.Permanent(errors.New("the order has no address"))
	}
	job.Log().Info("sent", "order", job.Args.OrderID)
	return job.SetResult(map[string]int64{"order": job.Args.OrderID})
}

func ExampleRun() {
	workers := engine.NewWorkers()
	engine.Register(workers, engine.WorkerFunc[SendReceipt](sendReceipt), engine.TypeOptions{})

	for _, to := range []string{"customer@example.com", ""} {
		run, err := enginetest.Run(context.Background(), workers, SendReceipt{OrderID: 8123, To: to}, enginetest.Options{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(run.Outcome, run.State, run.Reason, run.Message, string(run.Output))
	}
	// Output:
	// completed completed   {"order":8123}
	// failed dead_letter permanent the order has no address
}

// placeOrder is the shop's own code. It asks for what it needs of a client.
func placeOrder(ctx context.Context, jobs engine.Enqueuer, orderID int64) error {
	_, err := jobs.Enqueue(ctx, SendReceipt{OrderID: orderID, To: "customer@example.com"}, engine.EnqueueOptions{
		Queue: "mail", IdempotencyKey: fmt.Sprint("receipt-", orderID),
	})
	return err
}

func ExampleRecorder() {
	var jobs enginetest.Recorder
	for range 2 { // the second is a repetition
		if err := placeOrder(context.Background(), &jobs, 8123); err != nil {
			log.Fatal(err)
		}
	}
	for _, job := range jobs.Jobs() {
		fmt.Println(job.Queue, job.Type, string(job.Payload))
	}
	// Output:
	// mail send_receipt {"order_id":8123,"to":"customer@example.com"}
}

func ExampleArgsOf() {
	var jobs enginetest.Recorder
	if err := placeOrder(context.Background(), &jobs, 8123); err != nil {
		log.Fatal(err)
	}
	receipts, err := enginetest.ArgsOf[SendReceipt](&jobs)
	fmt.Println(receipts, err)
	// Output: [{8123 customer@example.com}] <nil>
}
