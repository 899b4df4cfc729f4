// Package api is the JSON API: it reads a request, makes one call, and answers.
// Limits and rules of jobs are the engine's; what an error means in HTTP is said
// in package web.
package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
	"github.com/reliable-job-engine/reliable-job-engine/web/overview"
)

// Engine is what the API asks of the engine.
type Engine interface {
	Enqueue(ctx context.Context, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error)
	EnqueueManyOnce(ctx context.Context, key string, items []engine.EnqueueItem) (done []engine.Enqueued, replayed bool, err error)
	EnqueueEach(ctx context.Context, items []engine.EnqueueItem) ([]engine.EnqueueResult, error)
	Cancel(ctx context.Context, id engine.ID, a engine.Actor) error
	Edit(ctx context.Context, id engine.ID, e engine.Edit, a engine.Actor) error
	RequestStop(ctx context.Context, id engine.ID, a engine.Actor) error
	RunNow(ctx context.Context, id engine.ID, a engine.Actor) error
	Replay(ctx context.Context, id engine.ID, a engine.Actor) error
	Discard(ctx context.Context, id engine.ID, a engine.Actor) error
	Restore(ctx context.Context, id engine.ID, a engine.Actor) error
	PreviewOperation(ctx context.Context, s engine.OperationSpec) (engine.OperationPreview, error)
	Operate(ctx context.Context, s engine.OperationSpec, a engine.Actor) (engine.Operation, error)
	Operations(ctx context.Context, before engine.Operation, limit int) ([]engine.Operation, error)
	Operation(ctx context.Context, id engine.ID) (engine.Operation, error)
	OperationOutcomes(ctx context.Context, o engine.Operation) (engine.OperationOutcomes, error)
	OperationFailures(ctx context.Context, id engine.ID, n, limit int) ([]engine.OperationFailure, error)
	PauseOperation(ctx context.Context, id engine.ID, a engine.Actor) error
	ContinueOperation(ctx context.Context, id engine.ID, a engine.Actor) error
	StopOperation(ctx context.Context, id engine.ID, a engine.Actor) error
	TypeSchema(ctx context.Context, typ string) (engine.TypeSchema, error)
	SetTypeSchema(ctx context.Context, typ string, text json.RawMessage, a engine.Actor) (engine.TypeSchema, error)
	RemoveTypeSchema(ctx context.Context, typ string, a engine.Actor) error
}

// Reader is what the API reads.
type Reader interface {
	Job(ctx context.Context, id engine.ID) (inspect.Job, error)
	Jobs(ctx context.Context, f inspect.JobFilter) (inspect.JobPage, error)
	Search(ctx context.Context, f inspect.SearchFilter) (inspect.JobPage, error)
	Attempts(ctx context.Context, id engine.ID) ([]inspect.Attempt, error)
	Result(ctx context.Context, id engine.ID) (inspect.Result, error)
	Logs(ctx context.Context, id engine.ID) ([]inspect.LogLine, error)
	Explain(ctx context.Context, id engine.ID, now time.Time) (inspect.Explanation, error)
	RefusedWrites(ctx context.Context, id engine.ID) ([]inspect.RefusedWrite, error)
	Queues(ctx context.Context) ([]inspect.Queue, error)
	Queue(ctx context.Context, name string) (inspect.Queue, error)
	DeadLetters(ctx context.Context, f inspect.DeadFilter) (inspect.DeadPage, error)
	DeadGroups(ctx context.Context, f inspect.GroupFilter) ([]inspect.DeadGroup, error)
	DeadLetter(ctx context.Context, id engine.ID) (inspect.DeadLetterDetail, error)
	Workers(ctx context.Context) ([]inspect.Worker, error)
	Leader(ctx context.Context) (*inspect.Leader, error)
	Audit(ctx context.Context, f inspect.AuditFilter) ([]inspect.Action, int64, error)
	CursorSecret(ctx context.Context) ([]byte, error)
}

var (
	_ Engine = (*engine.Client)(nil)
	_ Reader = (*inspect.Reader)(nil)
)

// Acts is told of operators' acts, for metrics. result is done or refused.
type Acts interface{ OperatorAction(action, result string) }

// Overview is asked what the console's first page answers.
type Overview interface {
	Overview(ctx context.Context) (overview.Overview, error)
}

// Config is what the API needs. Every field but Overview is required.
type Config struct {
	Engine Engine
	Read   Reader
	Acts   Acts
	Log    *slog.Logger
	// Overview answers /api/v1/stats. Where it is nil there is no such route.
	Overview Overview
	// PayloadMaxBytes is the engine's limit; a body may have 64 KiB more.
	PayloadMaxBytes int
	// ClientAddress is where a request comes from, for the audit trail.
	ClientAddress func(*http.Request) string
	// RequestID names a request in the log and the audit trail.
	RequestID func(echo.Context) string
	// Problem is an error as a problem of the request, and its status.
	Problem func(echo.Context, error) (status int, problem any)
	// Charge takes n more requests off what the caller may ask for.
	Charge func(c echo.Context, n int) error
}

// API serves the routes. It is safe for many goroutines.
type API struct {
	Config
	bodyMax int64
	cursors *cursors
}

// New returns the API; [API.Mount] puts it on a router.
func New(c Config) *API {
	return &API{Config: c, bodyMax: int64(c.PayloadMaxBytes) + 64<<10, cursors: &cursors{secretOf: c.Read.CursorSecret}}
}

// Mount adds every route. The paths without a version are the same handlers, for
// callers of the earlier service.
func (a *API) Mount(e *echo.Echo) {
	read, write, dead := auth.RequireScope(auth.ScopeJobsRead), auth.RequireScope(auth.ScopeJobsWrite), auth.RequireScope(auth.ScopeDLQWrite)
	for _, base := range []string{"/api/v1", ""} {
		e.POST(base+"/jobs", a.createJob, write)
		e.GET(base+"/jobs", a.listJobs, read, byQueue)
		e.GET(base+"/jobs/:id", a.getJob, read)
		e.DELETE(base+"/jobs/:id", a.cancelJob, write)
	}
	e.POST("/api/v1/jobs/bulk", a.createMany, write)
	e.PATCH("/api/v1/jobs/:id", a.editJob, write)
	e.POST("/api/v1/jobs/:id/stop", a.stopJob, write)
	e.POST("/api/v1/jobs/:id/run-now", a.runNow, write)
	e.GET("/api/v1/jobs/:id/attempts", a.listAttempts, read)
	e.GET("/api/v1/jobs/:id/logs", a.listLogs, read)
	e.GET("/api/v1/jobs/:id/explain", a.explainJob, read)
	e.GET("/api/v1/jobs/:id/result", a.getResult, read)
	e.GET("/api/v1/queues", a.listQueues, read)
	e.GET("/api/v1/queues/:name", a.getQueue, read)
	e.GET("/api/v1/types/:type/schema", a.getTypeSchema, read)
	e.PUT("/api/v1/types/:type/schema", a.setTypeSchema, auth.RequireScope(auth.ScopeAdmin), everyQueue)
	e.DELETE("/api/v1/types/:type/schema", a.removeTypeSchema, auth.RequireScope(auth.ScopeAdmin), everyQueue)
	e.GET("/api/v1/dlq", a.listDead, read, byQueue)
	e.GET("/api/v1/dlq/:id", a.getDead, read)
	e.POST("/api/v1/dlq/:id/replay", a.replay, dead)
	e.POST("/api/v1/dlq/:id/discard", a.discard, dead)
	e.POST("/api/v1/dlq/:id/restore", a.restore, dead)
	e.POST("/api/v1/dlq/replay", a.replayMany, dead)
	e.POST("/api/v1/dlq/discard", a.discardMany, dead)
	// What an operation does decides which other right it needs.
	e.POST("/api/v1/operations", a.createOperation, read)
	e.GET("/api/v1/operations", a.listOperations, read)
	e.GET("/api/v1/operations/:id", a.getOperation, read)
	e.POST("/api/v1/operations/:id/pause", a.steerOperation("pause", a.Engine.PauseOperation), read)
	e.POST("/api/v1/operations/:id/continue", a.steerOperation("continue", a.Engine.ContinueOperation), read)
	e.POST("/api/v1/operations/:id/stop", a.steerOperation("stop", a.Engine.StopOperation), read)
	e.GET("/api/v1/workers", a.listWorkers, read)
	e.GET("/api/v1/audit", a.listAudit, read)
	e.GET("/api/v1/openapi.json", a.getDocument) // for any token
	if a.Overview != nil {
		e.GET("/api/v1/stats", a.getStats, read)
	}
}
