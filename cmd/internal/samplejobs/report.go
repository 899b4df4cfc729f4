package samplejobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// What a report may cost.
const (
	reportSpan     = 24 * time.Hour      // default
	reportSpanMax  = 92 * 24 * time.Hour // a quarter
	reportRowsMax  = 5000                // rows beyond are left out, with a note
	reportBytesMax = 2900 << 10          // of the file: as base64 it still fits engine.MaxResultBytes
	reportMailRows = 40                  // rows in the mail
	groupsMax      = 200_000             // counted at once; more is refused
	nameMax        = 100                 // of a queue or a type, as the engine allows
)

// Report is the payload of a job of type report. Unknown fields are refused.
type Report struct {
	// Kind is throughput (how runs ended, by minute, hour or day), failures (by
	// queue and type, the worst first) or latencies (waits and durations).
	Kind string `json:"kind"`
	// Queue and Type ask for one; empty is all.
	Queue string `json:"queue,omitempty"`
	Type  string `json:"type,omitempty"`
	// From and To bound the span, To excluded, in whole minutes. To is by default
	// when the job became due, From a day before To. At most 92 days.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Format is csv (the default) or html, a page that needs nothing else.
	Format string `json:"format,omitempty"`
	// EmailTo gets the first rows by a job of type email, in this job's queue.
	EmailTo Addresses `json:"email_to,omitempty"`
}

// JobType implements [engine.Args].
func (Report) JobType() string { return "report" }

// UnmarshalJSON refuses unknown fields by name.
func (r *Report) UnmarshalJSON(b []byte) error {
	type plain Report
	return decode(b, (*plain)(r))
}

// ReportResult is what a report keeps: the file, ready for download.
type ReportResult struct {
	ContentType string `json:"content_type"` // text/csv or text/html, UTF-8
	Filename    string `json:"filename"`     // of letters, digits, - and . only
	Encoding    string `json:"encoding"`     // of data: always base64
	Data        []byte `json:"data"`
	Rows        int    `json:"rows"`
	// Note says what is left out.
	Note string `json:"note,omitempty"`
	// EmailJob is the job that mails it.
	EmailJob string `json:"email_job,omitempty"`
}

// Source is where reports read. Several goroutines may call it.
type Source interface {
	Minutes(ctx context.Context, f inspect.MinutesFilter) ([]inspect.Minute, error)
}

// Enqueuer adds the job that mails a report. Several goroutines may call it.
type Enqueuer interface {
	Enqueue(ctx context.Context, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error)
}

var (
	_ Source   = (*inspect.Reader)(nil)
	_ Enqueuer = (*engine.Client)(nil)
)

// reports makes reports. Several goroutines may use it.
type reports struct {
	source   Source
	enqueuer Enqueuer
}

func newReports(cfg Config) (*reports, error) {
	if cfg.Source == nil || cfg.Enqueuer == nil {
		return nil, errors.New("reports: Source and Enqueuer are required")
	}
	return &reports{source: cfg.Source, enqueuer: cfg.Enqueuer}, nil
}

// Work implements [engine.Worker].
func (r *reports) Work(ctx context.Context, job *engine.Job[Report]) error {
	result, err := r.make(ctx, job.Row, job.Args)
	if err != nil {
		return err
	}
	return job.SetResult(result)
}

// make reads, renders and, if asked, has it mailed.
func (r *reports) make(ctx context.Context, row engine.Row, args Report) (ReportResult, error) {
	to, err := args.complete(row.ReadyAt)
	if err != nil {
		return ReportResult{}, engine.Permanent(err)
	}
	counts, err := r.count(ctx, args)
	if err != nil {
		return ReportResult{}, err
	}
	t := tabulate(args, counts)
	data, err := t.fit(args.Format)
	if err != nil {
		return ReportResult{}, fmt.Errorf("render report: %w", err)
	}
	result := ReportResult{ContentType: contentTypes[args.Format], Filename: args.filename(), Encoding: "base64",
		Data: data, Rows: len(t.Rows), Note: t.note()}
	if len(to) > 0 {
		result.EmailJob, err = r.mail(ctx, row, args, t)
	}
	return result, err
}

var contentTypes = map[string]string{"csv": "text/csv; charset=utf-8", "html": "text/html; charset=utf-8"}

// complete checks a and fills in defaults; due is when the job became due. Its
// errors name the payload's field.
func (a *Report) complete(due time.Time) (mailTo Addresses, err error) {
	if a.Format == "" {
		a.Format = "csv"
	}
	if a.To.IsZero() {
		a.To = due
	}
	a.To = a.To.UTC().Truncate(time.Minute)
	if a.From.IsZero() {
		a.From = a.To.Add(-reportSpan)
	}
	a.From = a.From.UTC().Truncate(time.Minute)
	_, emailErr := parseAddresses("email_to", a.EmailTo)
	switch {
	case a.Kind == "":
		return nil, errors.New("kind: is missing, use throughput, failures or latencies")
	case !slices.Contains([]string{"throughput", "failures", "latencies"}, a.Kind):
		return nil, fmt.Errorf("kind: %q is none of throughput, failures, latencies", printable(a.Kind, 32))
	case contentTypes[a.Format] == "":
		return nil, fmt.Errorf("format: %q is none of csv, html", printable(a.Format, 32))
	case len(a.Queue) > nameMax:
		return nil, fmt.Errorf("queue: longer than %d bytes", nameMax)
	case len(a.Type) > nameMax:
		return nil, fmt.Errorf("type: longer than %d bytes", nameMax)
	case !a.From.Before(a.To):
		return nil, fmt.Errorf("from: %s must be a minute or more before to, %s", stamp(a.From), stamp(a.To))
	case a.To.Sub(a.From) > reportSpanMax:
		return nil, fmt.Errorf("from: the span is longer than %d days", reportSpanMax/(24*time.Hour))
	case emailErr != nil:
		return nil, emailErr
	case len(a.EmailTo) > recipientsMax:
		return nil, fmt.Errorf("email_to: %d recipients, at most %d", len(a.EmailTo), recipientsMax)
	}
	return a.EmailTo, nil
}

func (a *Report) filename() string {
	const compact = "20060102T1504Z"
	return fmt.Sprintf("%s-%s-%s.%s", a.Kind, a.From.Format(compact), a.To.Format(compact), a.Format)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// mail enqueues the mail under a key made of this job's id. A run that comes
// after a crash finds the key taken: by the same mail, or by one with the
// figures of then. Either way it is mailed, once.
func (r *reports) mail(ctx context.Context, row engine.Row, args Report, t *table) (string, error) {
	mail, err := t.email(row, args)
	if err != nil {
		return "", fmt.Errorf("render mail of report: %w", err)
	}
	done, err := r.enqueuer.Enqueue(ctx, mail, engine.EnqueueOptions{Queue: row.Queue, IdempotencyKey: "report:" + row.ID.String() + ":email"})
	var before *engine.KeyReusedError
	var invalid *engine.ValidationError
	switch {
	case errors.As(err, &before):
		return before.Holder.String(), nil
	case errors.As(err, &invalid):
		return "", engine.Permanent(fmt.Errorf("mail report: %w", err))
	case err != nil:
		return "", fmt.Errorf("mail report: %w", err)
	}
	return done.ID.String(), nil
}

// email is the mail of t, without attachment: its first rows and where to find
// the rest.
func (t *table) email(row engine.Row, args Report) (Email, error) {
	short := t.first(reportMailRows)
	short.Where = "The whole report is the result of job " + row.ID.String() + "."
	page, err := short.html()
	if err != nil {
		return Email{}, err
	}
	subject := fmt.Sprintf("%s, %s to %s", t.Title, stamp(args.From), stamp(args.To))
	text := strings.Join([]string{subject, t.Filters, short.text(), short.note(), short.Where}, "\n\n")
	return Email{To: args.EmailTo, Subject: subject, Text: strings.ReplaceAll(text, "\n\n\n\n", "\n\n") + "\n", HTML: string(page)}, nil
}
