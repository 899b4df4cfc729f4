// Package console is the web console: pages that an operator reads and forms that
// act. A handler reads the request, makes one call, and answers with a page, a
// fragment or a redirect. What it shows comes through engine/inspect, what it does
// goes through the engine's client, and what an error means in HTTP is said in
// package web.
package console

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/static"
	"github.com/reliable-job-engine/reliable-job-engine/views"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// Engine is what the console asks of the engine.
type Engine interface {
	Enqueue(ctx context.Context, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error)
	Cancel(ctx context.Context, id engine.ID, a engine.Actor) error
	RequestStop(ctx context.Context, id engine.ID, a engine.Actor) error
	RunNow(ctx context.Context, id engine.ID, a engine.Actor) error
	Replay(ctx context.Context, id engine.ID, a engine.Actor) error
	Discard(ctx context.Context, id engine.ID, a engine.Actor) error
	Restore(ctx context.Context, id engine.ID, a engine.Actor) error
	Reveal(ctx context.Context, id engine.ID, a engine.Actor) (json.RawMessage, error)
	PreviewOperation(ctx context.Context, s engine.OperationSpec) (engine.OperationPreview, error)
	Operate(ctx context.Context, s engine.OperationSpec, a engine.Actor) (engine.Operation, error)
	PauseOperation(ctx context.Context, id engine.ID, a engine.Actor) error
	ContinueOperation(ctx context.Context, id engine.ID, a engine.Actor) error
	StopOperation(ctx context.Context, id engine.ID, a engine.Actor) error
	Operation(ctx context.Context, id engine.ID) (engine.Operation, error)
	Operations(ctx context.Context, before engine.Operation, limit int) ([]engine.Operation, error)
	OperationOutcomes(ctx context.Context, o engine.Operation) (engine.OperationOutcomes, error)
	OperationFailures(ctx context.Context, id engine.ID, n, limit int) ([]engine.OperationFailure, error)
}

// Reader is what the console reads.
type Reader interface {
	Snapshot(ctx context.Context, maxAge time.Duration) (*inspect.Snapshot, error)
	Pulse(ctx context.Context, last *inspect.Pulse) (*inspect.Pulse, error)
	Job(ctx context.Context, id engine.ID) (inspect.Job, error)
	Search(ctx context.Context, f inspect.SearchFilter) (inspect.JobPage, error)
	JobList(ctx context.Context, f inspect.ListFilter) (inspect.JobPage, error)
	NextReady(ctx context.Context, queue string, limit int) ([]inspect.Job, error)
	Attempts(ctx context.Context, id engine.ID) ([]inspect.Attempt, error)
	Result(ctx context.Context, id engine.ID) (inspect.Result, error)
	RefusedWrites(ctx context.Context, id engine.ID) ([]inspect.RefusedWrite, error)
	Actions(ctx context.Context, id engine.ID) ([]inspect.Action, error)
	Copies(ctx context.Context, id engine.ID) ([]engine.ID, error)
	Explain(ctx context.Context, id engine.ID, now time.Time) (inspect.Explanation, error)
	DeadLetter(ctx context.Context, id engine.ID) (inspect.DeadLetterDetail, error)
	DeadLetters(ctx context.Context, f inspect.DeadFilter) (inspect.DeadPage, error)
	DeadGroups(ctx context.Context, f inspect.GroupFilter) ([]inspect.DeadGroup, error)
	FailuresOf(ctx context.Context, fingerprint string, since time.Time) (int64, error)
	Workers(ctx context.Context) ([]inspect.Worker, error)
	Worker(ctx context.Context, id int64) (inspect.Worker, error)
	WorkerRunning(ctx context.Context, id int64, limit int) ([]inspect.Run, error)
	WorkerRecent(ctx context.Context, id int64, limit int) ([]inspect.Run, error)
	Leader(ctx context.Context) (*inspect.Leader, error)
	Tasks(ctx context.Context) ([]inspect.Task, error)
	Integrity(ctx context.Context) (*inspect.Integrity, error)
	Audit(ctx context.Context, f inspect.AuditFilter) ([]inspect.Action, int64, error)
	Database(ctx context.Context) (inspect.Database, error)
}

var (
	_ Engine = (*engine.Client)(nil)
	_ Reader = (*inspect.Reader)(nil)
)

// Acts is told of operators' acts, for metrics. result is done or refused.
type Acts interface{ OperatorAction(action, result string) }

// SignIn is how people sign in: [auth.Sessions].
type SignIn interface {
	RequireSession(base string) echo.MiddlewareFunc
	LoginForm(base string, render auth.RenderLogin) echo.HandlerFunc
	Login(base string, render auth.RenderLogin) echo.HandlerFunc
	Logout(base string) echo.HandlerFunc
	ChangePassword(c echo.Context, current, password string) error
	EndOthers(c echo.Context) (ended int, err error)
	Limits() (idle, total time.Duration)
}

var _ SignIn = (*auth.Sessions)(nil)

// Setting is one effective setting, its value ready to print: secrets are hidden
// by whoever fills it in.
type Setting struct{ Name, Value, Source string }

// Config is what the console needs. Engine, Read, Acts, JobJSON, ClientAddress and
// RequestID are required.
type Config struct {
	Engine Engine
	Read   Reader
	Acts   Acts
	// Log gets what pages cannot say. Default: none.
	Log *slog.Logger
	// Base is where the console stands, without a slash at its end. Default
	// "/console".
	Base string
	// Env is development, staging or production. Default development.
	Env     string
	Version string
	// SignIn says who a browser's session is. nil asks for none: everybody may do
	// everything.
	SignIn SignIn
	// People and Tokens are who may sign in and what programs call the API with; nil
	// leaves out their pages.
	People People
	Tokens Tokens
	// Mask are parts of payload keys whose values are not shown. Default: password,
	// token, secret, authorization, card. An empty list that is not nil masks
	// nothing.
	Mask []string
	// LatencyTarget is how long a ready job may wait before the verdict says so.
	// Default 60s.
	LatencyTarget time.Duration
	// ReaperInterval is the engine's; three of them without a pass are critical.
	// Default 5s.
	ReaperInterval time.Duration
	// MaxAttempts is what a job gets that does not say, for the texts. Default
	// [engine.DefaultMaxAttempts].
	MaxAttempts int
	// DiscardDead says that exhausted jobs are discarded at once (DLQ_ENABLED=false).
	DiscardDead bool
	// Retention tells how long things are kept, for the help page and the 404.
	Retention []Setting
	// Settings are shown on the system page.
	Settings []Setting
	// SchemaVersion tells what migrations the database has and what this build
	// wants. Default: not shown.
	SchemaVersion func(context.Context) (database, build string, err error)
	// Pool tells the figures of the connection pool, in order. Default: not shown.
	Pool func() []Setting
	// Build is shown on the system page.
	Build []Setting
	// Problems are the API's, for the help page.
	Problems []views.HelpProblem
	// JobJSON is a job as the API answers it.
	JobJSON func(inspect.Job) ([]byte, error)
	// ClientAddress is where a request comes from, for the audit trail.
	ClientAddress func(*http.Request) string
	// RequestID names a request in the log and the audit trail.
	RequestID func(echo.Context) string
}

// Console serves the pages. It is safe for many goroutines.
type Console struct {
	Config
	board *board
	mask  func(key string) bool
	since time.Time // when it began to look
}

// New returns the console; [Console.Mount] puts it on a router.
func New(c Config) *Console {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Base == "" {
		c.Base = "/console"
	}
	c.Base = strings.TrimSuffix(c.Base, "/")
	if c.Env == "" {
		c.Env = "development"
	}
	if c.Mask == nil {
		c.Mask = []string{"password", "token", "secret", "authorization", "card"}
	}
	if c.LatencyTarget <= 0 {
		c.LatencyTarget = time.Minute
	}
	if c.ReaperInterval <= 0 {
		c.ReaperInterval = 5 * time.Second
	}
	if c.MaxAttempts <= 0 {
		c.MaxAttempts = engine.DefaultMaxAttempts
	}
	return &Console{Config: c, board: newBoard(c.Read), mask: masker(c.Mask), since: time.Now()}
}

// Owns tells whether a path belongs to the console, so that its errors are pages.
func (k *Console) Owns(path string) bool {
	return path == k.Base || strings.HasPrefix(path, k.Base+"/")
}

// Mount adds every route. Reading needs the scope jobs:read, which every role
// has; what acts says what it needs.
func (k *Console) Mount(e *echo.Echo) {
	files := echo.WrapHandler(http.StripPrefix(k.Base, static.Handler()))
	e.GET(k.Base+static.Prefix+"*", files)

	guards := []echo.MiddlewareFunc{k.headers}
	if k.SignIn != nil {
		guards = append(guards, k.SignIn.RequireSession(k.Base))
	}
	g := e.Group(k.Base, guards...)
	if k.SignIn != nil {
		g.GET("/login", k.SignIn.LoginForm(k.Base, k.loginPage))
		g.POST("/login", k.SignIn.Login(k.Base, k.loginPage))
		g.POST("/logout", k.SignIn.Logout(k.Base))
	}
	read, admin := k.need(auth.ScopeJobsRead, "viewer"), k.need(auth.ScopeAdmin, "admin")
	// Whoever is limited to queues is let in by these alone: their handlers keep to them.
	mine, write, dead := k.needMine(auth.ScopeJobsRead, "viewer"), k.needMine(auth.ScopeJobsWrite, "operator"), k.needMine(auth.ScopeDLQWrite, "operator")

	g.GET("", k.toOverview, mine)
	g.GET("/", k.overview, mine)
	g.GET("/jobs", k.jobs, mine)
	g.POST("/jobs", k.enqueue, write)
	g.GET("/jobs/new", k.newJob, write)
	g.GET("/jobs/:id", k.job, mine, k.ownJob)
	g.GET("/jobs/:id/payload", k.payload, mine, k.ownJob)
	g.GET("/jobs/:id/reveal", k.confirmReveal, write, k.ownJob)
	g.POST("/jobs/:id/reveal", k.reveal, write, k.ownJob)
	g.GET("/jobs/:id/result", k.result, mine, k.ownJob)
	g.GET("/jobs/:id/cancel", k.confirmCancel, write, k.ownJob)
	g.POST("/jobs/:id/cancel", k.cancel, write, k.ownJob)
	g.POST("/jobs/:id/run-now", k.runNow, write, k.ownJob)
	g.GET("/jobs/:id/stop", k.confirmStop, write, k.ownJob)
	g.POST("/jobs/:id/stop", k.stop, write, k.ownJob)
	g.GET("/queues", k.queues, mine)
	g.GET("/queues/:name", k.queue, mine)
	g.GET("/types", k.types, mine)
	g.GET("/types/:type", k.jobType, mine)
	g.GET("/dlq", k.deadLetters, mine)
	g.GET("/dlq/groups/:fingerprint", k.deadGroup, mine)
	g.POST("/dlq/:id/replay", k.replay, dead, k.ownJob)
	g.GET("/dlq/:id/discard", k.confirmDiscard, dead, k.ownJob)
	g.POST("/dlq/:id/discard", k.discard, dead, k.ownJob)
	g.POST("/dlq/:id/restore", k.restore, dead, k.ownJob)
	g.GET("/operations", k.operations, mine)
	g.POST("/operations", k.makeOperation, dead)
	g.GET("/operations/new", k.newOperation, dead)
	g.GET("/operations/:id", k.operation, mine)
	g.POST("/operations/:id/pause", k.steerOperation("pause", k.Engine.PauseOperation), dead)
	g.POST("/operations/:id/continue", k.steerOperation("continue", k.Engine.ContinueOperation), dead)
	g.POST("/operations/:id/stop", k.steerOperation("stop", k.Engine.StopOperation), dead)
	g.GET("/workers", k.workers, mine)
	g.GET("/workers/:id", k.worker, mine)
	g.GET("/audit", k.audit, read)
	g.GET("/system", k.system, read)
	g.GET("/help", k.help, mine)
	g.GET("/help/api", k.helpAPI, mine)
	g.GET("/help/api/schemas", k.helpAPISchemas, mine)
	g.GET("/help/problems/:code", k.helpProblem, mine)
	g.POST("/display", k.setDisplay, mine)
	k.mountAccount(g, mine)
	k.mountAccess(g, admin)
	g.Any("/*", k.nothingHere, mine)
}

func (k *Console) nothingHere(echo.Context) error {
	return &auth.Refusal{Code: "not-found", Detail: "No page has this address."}
}

// caller is who asks. Without sign-in it is anybody, who may do everything.
func (k *Console) caller(c echo.Context) auth.Principal {
	if k.SignIn == nil {
		return auth.Principal{Name: auth.NoSignIn, Kind: auth.KindAnonymous, Scopes: []auth.Scope{auth.ScopeAdmin}}
	}
	return auth.Caller(c)
}

// need refuses callers that lack a scope, and names the role that has it; and those
// limited to queues.
func (k *Console) need(s auth.Scope, role string) echo.MiddlewareFunc {
	lets := k.needMine(s, role)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return lets(func(c echo.Context) error {
			if err := k.everyQueue(c); err != nil {
				return err
			}
			return next(c)
		})
	}
}

func (k *Console) url(path string) string { return k.Base + path }

// masker tells which keys hold what is not shown: those that contain one of the
// patterns, whatever the case.
func masker(patterns []string) func(key string) bool {
	lower := make([]string, 0, len(patterns))
	for _, p := range patterns {
		if p = strings.ToLower(strings.TrimSpace(p)); p != "" {
			lower = append(lower, p)
		}
	}
	return func(key string) bool {
		key = strings.ToLower(key)
		for _, p := range lower {
			if strings.Contains(key, p) {
				return true
			}
		}
		return false
	}
}
