package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

type (
	tenantKey  struct{}
	traceIDKey struct{}
)

// withTenant looks up whose job it is; here, from the queue's name.
func withTenant(next engine.HandlerFunc) engine.HandlerFunc {
	return func(ctx context.Context, row engine.Row) error {
		if row.Queue == "default" {
			return engine.Permanent(errors.New("the job belongs to no tenant"))
		}
		return next(context.WithValue(ctx, tenantKey{}, row.Queue), row)
	}
}

// withTraceID gives each run an id that its logs and calls carry on.
func withTraceID(next engine.HandlerFunc) engine.HandlerFunc {
	return func(ctx context.Context, row engine.Row) error {
		return next(context.WithValue(ctx, traceIDKey{}, fmt.Sprintf("%s-%d", row.ID, row.FencingToken)), row)
	}
}

// withLog writes a line for each run, and tells errors which tenant met them.
func withLog(log *slog.Logger) engine.Middleware {
	return func(next engine.HandlerFunc) engine.HandlerFunc {
		return func(ctx context.Context, row engine.Row) error {
			began := time.Now()
			err := next(ctx, row)
			log.Info("ran", "type", row.Type, "tenant", ctx.Value(tenantKey{}), "trace_id", ctx.Value(traceIDKey{}), "failed", err != nil,
				"long", time.Since(began) > time.Second)
			if err != nil {
				return fmt.Errorf("tenant %s: %w", ctx.Value(tenantKey{}), err)
			}
			return nil
		}
	}
}

// Middleware is around every handler, the first outermost: so the line that
// withLog writes knows the tenant and the trace id.
func ExampleWorkers_Use() {
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: plain}))

	workers := engine.NewWorkers()
	workers.Use(withTenant, withTraceID, withLog(log))
	engine.Register(workers, engine.WorkerFunc[SendReceipt](func(ctx context.Context, job *engine.Job[SendReceipt]) error {
		return fmt.Errorf("mail to %s: %w", job.Args.To, errUnknownAddress)
	}), engine.TypeOptions{})

	// A test calls middleware as the engine does.
	run := withTenant(withTraceID(withLog(log)(func(context.Context, engine.Row) error { return errUnknownAddress })))
	job := engine.Row{ID: uuid.MustParse("0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10"), Type: "send_receipt", Queue: "acme", FencingToken: 7}
	fmt.Println(run(context.Background(), job))
	job.Queue = "default"
	fmt.Println(run(context.Background(), job))
	// Output:
	// level=INFO msg=ran type=send_receipt tenant=acme trace_id=0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10-7 failed=true long=false
	// tenant acme: unknown address
	// the job belongs to no tenant
}
