package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
	"github.com/reliable-job-engine/reliable-job-engine/web/api"
	"github.com/reliable-job-engine/reliable-job-engine/web/auth"
)

// codes has every problem this server answers: its status and title.
var codes = map[string]struct {
	status int
	title  string
}{
	"malformed-json":            {http.StatusBadRequest, "The body is not JSON"},
	"bad-query":                 {http.StatusBadRequest, "The query was not understood"},
	"unauthenticated":           {http.StatusUnauthorized, "A token is needed"},
	"forbidden":                 {http.StatusForbidden, "Not allowed"},
	"not-found":                 {http.StatusNotFound, "Nothing is here"},
	"method-not-allowed":        {http.StatusMethodNotAllowed, "This path has other methods"},
	"not-cancellable":           {http.StatusConflict, "The job cannot be cancelled"},
	"not-running":               {http.StatusConflict, "The job does not run"},
	"not-waiting":               {http.StatusConflict, "The job does not wait"},
	"not-dead":                  {http.StatusConflict, "The job is not a dead letter that this applies to"},
	"already-replayed":          {http.StatusConflict, "The job was replayed before"},
	"version-conflict":          {http.StatusConflict, "Somebody acted on the job since it was read"},
	"precondition-required":     {http.StatusPreconditionRequired, "The header If-Match is needed"},
	"precondition-failed":       {http.StatusPreconditionFailed, "The job is no longer what If-Match names"},
	"operation-state":           {http.StatusConflict, "The operation does not stand where this applies"},
	"count-moved":               {http.StatusConflict, "The selection is no longer what its preview told"},
	"request-timeout":           {http.StatusRequestTimeout, "The body came too slowly"},
	"payload-too-large":         {http.StatusRequestEntityTooLarge, "The body is too large"},
	"unsupported-media-type":    {http.StatusUnsupportedMediaType, "The body must be plain JSON"},
	"validation-failed":         {http.StatusUnprocessableEntity, "The request was not accepted"},
	"schema-violation":          {http.StatusUnprocessableEntity, "The payload does not fit the schema of its type"},
	"idempotency-key-reused":    {http.StatusUnprocessableEntity, "The key was used with other content"},
	"idempotency-key-in-flight": {http.StatusConflict, "The first call with this key has not finished"},
	"unique-conflict":           {http.StatusConflict, "Another job holds the unique key"},
	"rate-limited":              {http.StatusTooManyRequests, "Too many requests"},
	"timeout":                   {http.StatusServiceUnavailable, "The request took too long"},
	"unavailable":               {http.StatusServiceUnavailable, "The database is not available"},
	"internal":                  {http.StatusInternalServerError, "Something went wrong here"},
}

// problem is an error as the API writes it (RFC 9457).
type problem struct {
	Type      string     `json:"type"`
	Title     string     `json:"title"`
	Status    int        `json:"status"`
	Code      string     `json:"code"`
	Detail    string     `json:"detail,omitempty"`
	Instance  string     `json:"instance"`
	RequestID string     `json:"request_id"`
	JobID     string     `json:"job_id,omitempty"`
	JobStatus string     `json:"job_status,omitempty"`
	Scope     auth.Scope `json:"scope,omitempty"` // the one that is lacking
	Errors    []api.Flaw `json:"errors,omitempty"`

	retryAfter string
}

// problemOf is the only place where an engine error becomes a status. What is not
// listed is 500, and its text goes to the log alone.
func problemOf(err error) problem {
	var (
		refusal    *auth.Refusal
		bad        *api.RequestError
		validation *engine.ValidationError
		reused     *engine.KeyReusedError
		held       *engine.UniqueConflictError
		state      *engine.StateError
		steered    *engine.OperationStateError
		moved      *engine.CountMovedError
		routing    *echo.HTTPError
		item       *engine.ItemError
		limited    *limitError
	)
	switch {
	case errors.As(err, &item):
		p := problemOf(item.Err)
		p.Errors = []api.Flaw{api.ItemFlaw(item, p.Code, p.Detail)}
		return p
	case errors.As(err, &refusal):
		return problem{Code: refusal.Code, Detail: refusal.Detail, Scope: refusal.Scope}
	case errors.As(err, &limited):
		return problem{Code: "rate-limited", Detail: limited.Error(), retryAfter: strconv.Itoa(limited.wait)}
	case errors.As(err, &bad):
		return problem{Code: bad.Code, Detail: bad.Detail, Errors: bad.Flaws}
	case errors.As(err, &validation):
		return validationProblem(validation)
	case errors.As(err, &reused):
		return problem{Code: "idempotency-key-reused", Detail: "Job " + reused.Holder.String() + " was made with this key and other content.",
			JobID: reused.Holder.String()}
	case errors.Is(err, engine.ErrKeyInFlight):
		return problem{Code: "idempotency-key-in-flight", Detail: "Another call holds this key. Try again.", retryAfter: "1"}
	case errors.As(err, &held):
		return problem{Code: "unique-conflict", Detail: heldBy(held), JobID: held.Holder.String(), JobStatus: string(held.State)}
	case errors.Is(err, engine.ErrUniqueInFlight):
		return problem{Code: "unique-conflict", Detail: "Another call is taking this unique key and has not finished. Try again.", retryAfter: "1"}
	case errors.As(err, &state):
		return stateProblem(state)
	case errors.As(err, &steered):
		return problem{Code: "operation-state", Detail: "The operation is " + string(steered.State) + ", so that " + steered.Act + " does not apply."}
	case errors.As(err, &moved):
		return problem{Code: "count-moved", Detail: fmt.Sprintf("%d jobs fit now, %d were expected, which is off by more than a tenth. Nothing was done.", moved.Total, moved.Expected)}
	case errors.Is(err, engine.ErrOperationNotFound):
		return problem{Code: "not-found", Detail: "No operation has this id."}
	case errors.Is(err, engine.ErrNothingSelected):
		return problem{Code: "not-found", Detail: "No job fits the selection. Nothing was done."}
	case errors.Is(err, engine.ErrNoTypeSchema):
		return problem{Code: "not-found", Detail: "No schema is set for this type: any JSON object is a payload of it."}
	case errors.Is(err, engine.ErrJobNotFound):
		return problem{Code: "not-found", Detail: "No job has this id, or its history is no longer kept."}
	case errors.Is(err, inspect.ErrNoResult):
		return problem{Code: "not-found", Detail: "The job has kept no result."}
	case errors.Is(err, inspect.ErrQueueNotFound):
		return problem{Code: "not-found", Detail: "Nothing is known of this queue."}
	case errors.As(err, &routing):
		return routingProblem(routing)
	case errors.Is(err, engine.ErrOutcomeUnknown) && timedOut(err):
		return problem{Code: "timeout", Detail: lostAnswer, retryAfter: "1"}
	case errors.Is(err, engine.ErrOutcomeUnknown):
		return problem{Code: "unavailable", Detail: lostAnswer, retryAfter: "2"}
	case timedOut(err):
		return problem{Code: "timeout", Detail: "A write may have happened: repeat it under the same Idempotency-Key.", retryAfter: "1"}
	case unavailable(err):
		return problem{Code: "unavailable", Detail: "A write may have happened: repeat it under the same Idempotency-Key.", retryAfter: "2"}
	}
	return problem{Code: "internal", Detail: "The request id finds the reason in the server's log."}
}

const lostAnswer = "The database's answer was lost: what was asked may or may not have happened. Repeat an enqueue under the same Idempotency-Key: it gives one job."

func heldBy(e *engine.UniqueConflictError) string {
	if e.State.Finished() && !e.Until.IsZero() {
		return "Job " + e.Holder.String() + " is " + string(e.State) + " and holds the unique key until " + e.Until.UTC().Format(time.RFC3339) + "."
	}
	return "Job " + e.Holder.String() + " holds the unique key and is " + string(e.State) + "."
}

func validationProblem(e *engine.ValidationError) problem {
	if e.Has("payload", "too-large") {
		return problem{Code: "payload-too-large", Detail: "payload: " + detailOf(e, "payload")}
	}
	if e.Has("payload", "malformed") {
		return problem{Code: "malformed-json", Detail: "payload " + detailOf(e, "payload")}
	}
	bad := api.FieldsError(e.Fields)
	return problem{Code: bad.Code, Detail: bad.Detail, Errors: bad.Flaws}
}

func detailOf(e *engine.ValidationError, field string) string {
	for _, f := range e.Fields {
		if f.Field == field {
			return f.Detail
		}
	}
	return ""
}

func stateProblem(e *engine.StateError) problem {
	p := problem{Code: "not-dead", JobID: e.ID.String(), JobStatus: string(e.State)}
	switch {
	case e.Changed:
		p.Code = "version-conflict"
		p.Detail = "Somebody acted on the job since it was read; it is " + string(e.State) + "."
	case e.Act == "cancel":
		p.Code = "not-cancellable"
		p.Detail = "The job is " + string(e.State) + "; only a job that waits can be cancelled."
	case e.Act == "run_now":
		p.Code = "not-waiting"
		p.Detail = "The job is " + string(e.State) + "; only a job that waits for its time can be brought forward."
	case e.Act == "edit":
		p.Code = "not-waiting"
		p.Detail = "The job is " + string(e.State) + "; only a job that waits can be edited."
	case e.Act == "stop":
		p.Code = "not-running"
		p.Detail = "The job is " + string(e.State) + "; only a running job can be asked to stop."
	case e.Discarded:
		p.Detail = "The job was discarded; restore it first."
	case e.Act == "restore":
		p.Detail = "The job is not a discarded dead letter."
	case e.State != engine.StateDeadLetter && e.Replays > 0:
		p.Code = "already-replayed"
		p.Detail = "The job was replayed and is " + string(e.State) + "."
	default:
		p.Detail = "The job is " + string(e.State) + "."
	}
	return p
}

func routingProblem(e *echo.HTTPError) problem {
	switch e.Code {
	case http.StatusNotFound:
		return problem{Code: "not-found", Detail: "No such path."}
	case http.StatusMethodNotAllowed:
		return problem{Code: "method-not-allowed", Detail: "The header Allow lists the methods of this path."}
	}
	return problem{Code: "internal", Detail: "The request id finds the reason in the server's log."}
}

func timedOut(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" { // query_canceled: the statement's own limit
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.Canceled)
}

// unavailable tells errors that pass by themselves: the database is away, starting,
// stopping, full, a standby, or rolled back for a conflict.
func unavailable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "25006", "40001", "40P01", "55P03":
			return true
		}
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "53") || strings.HasPrefix(pg.Code, "57P")
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, puddle.ErrClosedPool) || pgconn.SafeToRetry(err)
}

// problemFor is err as a problem of a request.
func (s *server) problemFor(c echo.Context, err error) problem {
	p := problemOf(err)
	known := codes[p.Code]
	p.Type, p.Title, p.Status = "about:blank", known.title, known.status
	if s.help != "" {
		p.Type = s.help + p.Code
	}
	p.Instance, p.RequestID = c.Request().URL.Path, requestID(c)
	return p
}

// problem is problemFor as the API puts it into its own answers.
func (s *server) problem(c echo.Context, err error) (status int, body any) {
	p := s.problemFor(c, err)
	return p.Status, p
}

// answerError writes err as a problem. It is echo's error handler.
func (s *server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p := s.problemFor(c, err)
	h := c.Response().Header()
	if p.retryAfter != "" {
		h.Set(echo.HeaderRetryAfter, p.retryAfter)
	}
	if s.failPage(c, p) {
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"title":"Something went wrong here","status":500,"code":"internal"}`)
		p.Status = http.StatusInternalServerError
	}
	h.Set("X-Content-Type-Options", "nosniff")
	if err := c.Blob(p.Status, "application/problem+json", body); err != nil {
		s.log.DebugContext(c.Request().Context(), "answer not delivered", slog.Any("error", err), slog.String("request_id", requestID(c)))
	}
}
