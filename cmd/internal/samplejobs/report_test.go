package samplejobs

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

// figures is a Source with its rows in memory, under the limit of rows a read
// may have; the real one is in engine_test.go.
type figures struct {
	rows  []inspect.Minute
	limit int
	err   error
	reads *int
}

func (f figures) Minutes(_ context.Context, q inspect.MinutesFilter) ([]inspect.Minute, error) {
	if f.reads != nil {
		*f.reads++
	}
	var out []inspect.Minute
	for _, m := range f.rows {
		if !m.Minute.Before(q.From) && m.Minute.Before(q.To) && (q.Queue == "" || q.Queue == m.Queue) && (q.Type == "" || q.Type == m.Type) {
			out = append(out, m)
		}
	}
	if f.limit > 0 && len(out) > f.limit {
		return nil, inspect.ErrTooMany
	}
	return out, f.err
}

// keyed is an Enqueuer that knows its keys and contents.
type keyed struct {
	byKey map[string]Email
	queue string
	err   error
}

var holder = uuid.MustParse("0193b6a2-6f1e-7c41-9a57-2d1f0c9b5e10")

func (k *keyed) Enqueue(_ context.Context, args engine.Args, o engine.EnqueueOptions) (engine.Enqueued, error) {
	if k.err != nil {
		return engine.Enqueued{}, k.err
	}
	mail := args.(Email)
	if before, ok := k.byKey[o.IdempotencyKey]; ok && !cmp.Equal(before, mail) {
		return engine.Enqueued{}, &engine.KeyReusedError{Key: o.IdempotencyKey, Holder: holder}
	}
	k.byKey[o.IdempotencyKey], k.queue = mail, o.Queue
	return engine.Enqueued{ID: holder}, nil
}

var due = time.Date(2026, 12, 1, 9, 30, 20, 0, time.UTC) // as run gives it

func minute(ago time.Duration, queue, jobType string, outcome engine.Outcome, n int64, bucket int) inspect.Minute {
	m := inspect.Minute{Minute: due.Add(-ago).Truncate(time.Minute), Queue: queue, Type: jobType, Outcome: outcome, N: n, RunMS: 200 * n,
		WaitBuckets: make([]int64, len(inspect.BucketBounds)+1), RunBuckets: make([]int64, len(inspect.BucketBounds)+1)}
	m.WaitBuckets[bucket], m.RunBuckets[bucket] = n, n
	return m
}

var day = []inspect.Minute{
	minute(25*time.Hour, "mail", "email", engine.OutcomeCompleted, 1000, 0), // before the default span
	minute(23*time.Hour, "mail", "email", engine.OutcomeCompleted, 90, 4),
	minute(23*time.Hour, "mail", "email", engine.OutcomeFailed, 6, 4),
	minute(2*time.Hour, "mail", "email", engine.OutcomeTimedOut, 3, 17),
	minute(2*time.Hour, "mail", "email", engine.OutcomeSnoozed, 1, 4),
	minute(time.Hour, "default", "report", engine.OutcomeCompleted, 4, 4),
}

func lines(t *testing.T, data []byte) [][]string {
	t.Helper()
	all, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatalf("read csv: %v\n%s", err, data)
	}
	return all
}

func TestReportsCountTheSpan(t *testing.T) {
	t.Parallel()
	r := &reports{source: figures{rows: day}}
	for _, tt := range []struct {
		payload, filename string
		want              [][]string
	}{
		{`{"kind":"failures"}`, "failures-20261130T0930Z-20261201T0930Z.csv", [][]string{
			{"queue", "type", "runs", "failures", "failures_percent", "failed", "timed_out", "crashed", "lease_expired", "expired"},
			{"mail", "email", "100", "9", "9.091", "6", "3", "0", "0", "0"},
			{"default", "report", "4", "0", "0.000", "0", "0", "0", "0", "0"}}},
		{`{"kind":"throughput","queue":"mail"}`, "throughput-20261130T0930Z-20261201T0930Z.csv", [][]string{
			{"from", "queue", "type", "runs", "completed", "failures", "other", "completed_per_minute"},
			{"2026-11-30T10:00:00Z", "mail", "email", "96", "90", "6", "0", "1.500"},
			{"2026-12-01T07:00:00Z", "mail", "email", "4", "0", "3", "1", "0.000"}}},
		{`{"kind":"throughput","type":"report","from":"2026-12-01T08:29:00Z","to":"2026-12-01T10:31:30+01:00"}`, "throughput-20261201T0829Z-20261201T0931Z.csv", [][]string{
			{"from", "queue", "type", "runs", "completed", "failures", "other", "completed_per_minute"},
			{"2026-12-01T08:30:00Z", "default", "report", "4", "4", "0", "0", "4.000"}}},
		{`{"kind":"latencies","format":"csv"}`, "latencies-20261130T0930Z-20261201T0930Z.csv", [][]string{
			{"queue", "type", "runs", "about_wait_p50_seconds", "about_wait_p95_seconds", "about_wait_p99_seconds",
				"about_run_p50_seconds", "about_run_p95_seconds", "about_run_p99_seconds", "run_mean_seconds"},
			{"default", "report", "4", "0.075", "0.0975", "0.0995", "0.075", "0.0975", "0.0995", "0.200"},
			{"mail", "email", "100", "0.0758", "0.099", "over 3600", "0.0758", "0.099", "over 3600", "0.200"}}},
	} {
		got, err := r.make(t.Context(), run(t, 1), parse[Report](t, tt.payload))
		if err != nil {
			t.Errorf("%s: %v", tt.payload, err)
			continue
		}
		if diff := cmp.Diff(tt.want, lines(t, got.Data)); diff != "" || got.Filename != tt.filename {
			t.Errorf("%s: %s, (-want +got)\n%s", tt.payload, got.Filename, diff)
		}
		if got.ContentType != "text/csv; charset=utf-8" || got.Encoding != "base64" || got.Rows != len(tt.want)-1 || got.Note != "" || got.EmailJob != "" {
			t.Errorf("%s: result %+v", tt.payload, got)
		}
	}
}

func TestQuantileIsReadWithinItsBucket(t *testing.T) {
	t.Parallel()
	counts := func(at map[int]int64) []int64 {
		c := make([]int64, len(inspect.BucketBounds)+1)
		for i, n := range at {
			c[i] = n
		}
		return c
	}
	for _, tt := range []struct {
		counts map[int]int64
		q      float64
		want   string
	}{
		{nil, 0.5, ""}, {map[int]int64{0: 10}, 0.5, "0.0025"}, {map[int]int64{0: 10}, 1, "0.005"}, {map[int]int64{7: 1, 8: 1}, 0.5, "1"},
		{map[int]int64{0: 99, 16: 1}, 0.99, "0.005"}, {map[int]int64{0: 98, 16: 2}, 0.99, "2700"}, {map[int]int64{17: 1}, 0.5, "over 3600"},
	} {
		if got := quantile(counts(tt.counts), tt.q); got != tt.want {
			t.Errorf("quantile(%v, %v) = %q, want %q", tt.counts, tt.q, got, tt.want)
		}
	}
}

func TestLongSpansAreReadInPieces(t *testing.T) {
	t.Parallel()
	var rows []inspect.Minute
	for i := range 3000 {
		rows = append(rows, minute(time.Duration(i+1)*time.Minute, "q", "t", engine.OutcomeCompleted, 1, 0))
	}
	reads := 0
	r := &reports{source: figures{rows: rows, limit: 100, reads: &reads}}
	got, err := r.make(t.Context(), run(t, 1), parse[Report](t, `{"kind":"failures","from":"2026-11-25T00:00:00Z"}`))
	if err != nil || lines(t, got.Data)[1][2] != "3000" {
		t.Errorf("%v after %d reads: %s", err, reads, got.Data)
	}
	r.source = figures{rows: slices.Repeat(rows[:1], 101), limit: 100}
	_, err = r.make(t.Context(), run(t, 1), Report{Kind: "failures"})
	if !errors.Is(err, inspect.ErrTooMany) {
		t.Errorf("a minute that is too large: %v", err)
	}
}

func TestReportIsBoundedInRowsAndBytesAndSaysSo(t *testing.T) {
	t.Parallel()
	var rows []inspect.Minute
	for i := range reportRowsMax + 7 {
		rows = append(rows, minute(time.Hour, "q", fmt.Sprintf("%0100d", i), engine.OutcomeCompleted, 1, 0))
	}
	r := &reports{source: figures{rows: rows}}
	got, err := r.make(t.Context(), run(t, 1), Report{Kind: "latencies"})
	all := lines(t, got.Data)
	if err != nil || got.Rows != reportRowsMax || !strings.HasPrefix(got.Note, "7 more rows are left out") || all[len(all)-1][0] != got.Note {
		t.Errorf("%d rows, note %q, %v, last line %q", got.Rows, got.Note, err, all[len(all)-1])
	}

	big := &table{Columns: []string{"a"}, Texts: 1, Rows: slices.Repeat([][]string{{strings.Repeat("<", 1000)}}, reportRowsMax)}
	data, err := big.fit("html")
	if err != nil || len(data) > reportBytesMax || big.Omitted == 0 || len(big.Rows)+big.Omitted != reportRowsMax || !bytes.Contains(data, []byte(big.note())) {
		t.Errorf("%d bytes, %d rows, %d left out, %v", len(data), len(big.Rows), big.Omitted, err)
	}
}

func TestNamesAreNeitherFormulasNorMarkup(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"=1+1", "'=1+1"}, {"+1", "'+1"}, {"-1", "'-1"}, {"@sum", "'@sum"}, {"\tx", "'\tx"}, {"\r=x", "'\r=x"}, {"＝1", "'＝1"}, {"mail", "mail"}, {"a=b", "a=b"}, {"", ""},
	} {
		if got := plainCell(tt.in); got != tt.want {
			t.Errorf("plainCell(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	r := &reports{source: figures{rows: []inspect.Minute{minute(time.Hour, `=HYPERLINK("http://x","y")`, "<script>alert(1)</script>", engine.OutcomeFailed, 1, 0)}}}
	file, err := r.make(t.Context(), run(t, 1), Report{Kind: "failures"})
	if err != nil || lines(t, file.Data)[1][0] != `'=HYPERLINK("http://x","y")` {
		t.Errorf("csv %s, %v", file.Data, err)
	}
	page, err := r.make(t.Context(), run(t, 1), Report{Kind: "failures", Format: "html", Queue: "<b>"})
	if err != nil || bytes.Contains(page.Data, []byte("<script>")) || bytes.Contains(page.Data, []byte("<b>")) {
		t.Errorf("html %s, %v", page.Data, err)
	}
}

func TestHTMLReportStandsAlone(t *testing.T) {
	t.Parallel()
	r := &reports{source: figures{rows: day}}
	got, err := r.make(t.Context(), run(t, 1), Report{Kind: "latencies", Format: "html"})
	page := string(got.Data)
	if err != nil || got.ContentType != "text/html; charset=utf-8" || !strings.HasSuffix(got.Filename, ".html") {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, want := range []string{"<h1>Latencies</h1>", "<th scope=\"col\" class=\"n\">about wait p50 seconds</th>", "Percentiles are about right", "<td class=\"n\">over 3600</td>", "All queues and types."} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, never := range []string{"src=", "href=", "url(", "<script"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	got, err = r.make(t.Context(), run(t, 1), Report{Kind: "failures", Format: "html", Queue: "none"})
	if err != nil || !bytes.Contains(got.Data, []byte("No runs in this span.")) || got.Rows != 0 {
		t.Errorf("empty report %s, %v", got.Data, err)
	}
}

func TestReportIsMailedOnceWhateverTheFiguresSay(t *testing.T) {
	t.Parallel()
	mails := &keyed{byKey: map[string]Email{}}
	r := &reports{source: figures{rows: day}, enqueuer: mails}
	row := run(t, 1)
	row.Queue = "reports"
	args := parse[Report](t, `{"kind":"failures","email_to":["ann@example.com","Ben <ben@example.com>"]}`)
	first, err := r.make(t.Context(), row, args)
	if err != nil || first.EmailJob != holder.String() {
		t.Fatalf("first: %+v, %v", first, err)
	}
	r.source = figures{rows: day[:3]} // the run after a crash sees other figures
	second, err := r.make(t.Context(), row, args)
	if err != nil || second.EmailJob != holder.String() || len(mails.byKey) != 1 || mails.queue != "reports" {
		t.Fatalf("second: %+v, %v; %d mails", second, err, len(mails.byKey))
	}
	mail := mails.byKey["report:"+row.ID.String()+":email"]
	if mail.Subject != "Failures, 2026-11-30T09:30:00Z to 2026-12-01T09:30:00Z" || len(mail.To) != 2 ||
		!strings.Contains(mail.Text, "mail     email   100") || !strings.Contains(mail.Text, row.ID.String()) || !strings.Contains(mail.HTML, "<td>email</td>") {
		t.Errorf("the mail is %+v", mail)
	}
	if _, _, err := (&emails{from: must(parseAddress("jobs@example.com"))}).compose(row, mail); err != nil {
		t.Errorf("the mail is no email job: %v", err)
	}
	mails.err = &engine.ValidationError{Fields: []engine.FieldError{{Field: "payload", Code: "too-large", Detail: "too large"}}}
	_, err = r.make(t.Context(), row, args)
	wantError(t, err, "permanent", "mail report: payload: too large")
	mails.err = engine.ErrKeyInFlight
	_, err = r.make(t.Context(), row, args)
	wantError(t, err, "retry", "mail report: idempotency key")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestReportPayloadIsCheckedFieldByField(t *testing.T) {
	t.Parallel()
	r := &reports{source: figures{}, enqueuer: &keyed{byKey: map[string]Email{}}}
	for _, tt := range []struct{ payload, want string }{
		{`{}`, "kind: is missing"},
		{`{"kind":"cost"}`, `kind: "cost" is none of`},
		{`{"kind":"failures","format":"pdf"}`, `format: "pdf" is none of csv, html`},
		{`{"kind":"failures","from":"2026-12-02T00:00:00Z"}`, "from: 2026-12-02T00:00:00Z must be a minute or more before to, 2026-12-01T09:30:00Z"},
		{`{"kind":"failures","from":"2026-01-01T00:00:00Z"}`, "from: the span is longer than 92 days"},
		{`{"kind":"failures","from":"0001-01-01T00:00:01Z","to":"9999-12-31T00:00:00Z"}`, "from: the span is longer"},
		{`{"kind":"failures","email_to":"x\r\nBcc: y@example.com"}`, "email_to: "},
		{`{"kind":"failures","queue":"` + strings.Repeat("q", 101) + `"}`, "queue: longer than 100"},
	} {
		_, err := r.make(t.Context(), run(t, 1), parse[Report](t, tt.payload))
		wantError(t, err, "permanent", tt.want)
	}
	var args Report
	if err := args.UnmarshalJSON([]byte(`{"from":"yesterday","to":7,"knd":1}`)); err == nil ||
		err.Error() != "from: must be an RFC 3339 time such as 2026-12-01T06:00:00Z; knd: unknown field, did you mean kind?; to: must be an RFC 3339 time such as 2026-12-01T06:00:00Z" {
		t.Errorf("decode = %v", err)
	}
	r.source = figures{err: errors.New("database away")}
	_, err := r.make(t.Context(), run(t, 1), Report{Kind: "failures"})
	wantError(t, err, "retry", "count runs: database away")
}
