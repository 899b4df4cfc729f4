package ops

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
	"github.com/reliable-job-engine/reliable-job-engine/engine/inspect"
)

const prefix = "jobengine_"

// Metrics is this process's figures: what the engine tells its observer, what the
// HTTP server did, and, with [Metrics.AddSnapshot], the gauges of the database. It
// is safe for many goroutines.
type Metrics struct {
	engine.NopObserver

	registry *prometheus.Registry
	names    labels

	enqueued, claimed, executions            *prometheus.CounterVec
	deadLetters, dlqReplays, renewals        *prometheus.CounterVec
	reaped, refused, keyRepeats, acts, tasks *prometheus.CounterVec
	rateLimited                              *prometheus.CounterVec
	runTime, queueWait, requests             *prometheus.HistogramVec
	enqueueTime, claimTime, claimBatch       prometheus.Histogram
	listener                                 prometheus.Gauge
}

var _ engine.Observer = (*Metrics)(nil)

// durations are the buckets of every duration, the same as in the rollups.
var durations = func() []float64 {
	b := make([]float64, len(inspect.BucketBounds))
	for i, d := range inspect.BucketBounds {
		b[i] = d.Seconds()
	}
	return b
}()

// requestTimes adds buckets below those, since most requests are faster.
var requestTimes = append([]float64{0.001, 0.0025}, durations...)

// NewMetrics returns figures that start at zero, in a registry of their own.
func NewMetrics(build Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), names: newLabels()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	times := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	plain := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.enqueued = counter("jobs_enqueued_total", "Jobs accepted.", "queue", "type")
	m.claimed = counter("jobs_claimed_total", "Jobs claimed by this process.", "queue")
	m.executions = counter("executions_total", "Runs closed by this process.", "queue", "type", "outcome")
	m.deadLetters = counter("dead_letters_total", "Jobs that became dead letters.", "queue", "type", "reason")
	m.dlqReplays = counter("dlq_replays_total", "Replays asked for.", "result")
	m.renewals = counter("lease_renewals_total", "Leases in heartbeats' answers.", "result")
	m.reaped = counter("leases_reaped_total", "Lost runs whose job was taken back.", "queue")
	m.refused = counter("stale_writes_refused_total", "Writes refused for a token no longer current.", "operation")
	m.keyRepeats = counter("idempotency_replays_total", "Idempotency keys that found their first answer.", "scope")
	m.rateLimited = counter("api_rate_limited_total", "Requests refused for their number.", "class")
	m.acts = counter("operator_actions_total", "Acts on jobs.", "action", "result")
	m.tasks = counter("maintenance_passes_total", "Maintenance passes of this process.", "task", "result")
	m.runTime = times(prefix+"execution_duration_seconds", "From start to end of a run.", durations, "queue", "type", "outcome")
	m.queueWait = times(prefix+"queue_wait_seconds", "From due to started.", durations, "queue")
	m.requests = times("http_server_request_duration_seconds", "From the request's first byte to its answer.", requestTimes, "method", "route", "status")
	m.enqueueTime = plain("enqueue_duration_seconds", "One enqueue call, commit included.", requestTimes)
	m.claimTime = plain("claim_duration_seconds", "One claim statement.", requestTimes)
	m.claimBatch = plain("claim_batch_size", "Jobs of one claim.", []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000})
	m.listener = prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "listener_up", Help: "1 while this process hears notifications."})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "The build, as labels.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go_version": build.Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.listener, info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, result := range []string{"renewed", "lost"} {
		m.renewals.WithLabelValues(result)
	}
	return m
}

// Handler serves the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// JobsEnqueued implements [engine.Observer].
func (m *Metrics) JobsEnqueued(queue, jobType string, n int) {
	m.enqueued.WithLabelValues(m.names.queue(queue), m.names.kind(jobType)).Add(float64(n))
}

// EnqueueTook implements [engine.Observer].
func (m *Metrics) EnqueueTook(d time.Duration) { m.enqueueTime.Observe(d.Seconds()) }

// JobsClaimed implements [engine.Observer].
func (m *Metrics) JobsClaimed(queue string, n int) {
	m.claimed.WithLabelValues(m.names.queue(queue)).Add(float64(n))
}

// ClaimTook implements [engine.Observer].
func (m *Metrics) ClaimTook(d time.Duration, batch int) {
	m.claimTime.Observe(d.Seconds())
	m.claimBatch.Observe(float64(batch))
}

// RunEnded implements [engine.Observer].
func (m *Metrics) RunEnded(queue, jobType string, outcome engine.Outcome, wait, run time.Duration) {
	queue, jobType = m.names.queue(queue), m.names.kind(jobType)
	m.executions.WithLabelValues(queue, jobType, outcome.String()).Inc()
	m.runTime.WithLabelValues(queue, jobType, outcome.String()).Observe(run.Seconds())
	m.queueWait.WithLabelValues(queue).Observe(wait.Seconds())
}

// JobDied implements [engine.Observer].
func (m *Metrics) JobDied(queue, jobType string, reason engine.Reason) {
	m.deadLetters.WithLabelValues(m.names.queue(queue), m.names.kind(jobType), string(reason)).Inc()
}

// LeasesRenewed implements [engine.Observer].
func (m *Metrics) LeasesRenewed(renewed, lost int) {
	m.renewals.WithLabelValues("renewed").Add(float64(renewed))
	m.renewals.WithLabelValues("lost").Add(float64(lost))
}

// LeaseReaped implements [engine.Observer].
func (m *Metrics) LeaseReaped(queue string) { m.reaped.WithLabelValues(m.names.queue(queue)).Inc() }

// WriteRefused implements [engine.Observer].
func (m *Metrics) WriteRefused(operation string) { m.refused.WithLabelValues(operation).Inc() }

// KeyRepeated implements [engine.Observer].
func (m *Metrics) KeyRepeated(scope string) { m.keyRepeats.WithLabelValues(scope).Inc() }

// JobReplayed implements [engine.Observer].
func (m *Metrics) JobReplayed(string, string) { m.dlqReplays.WithLabelValues("replayed").Inc() }

// ListenerConnected implements [engine.Observer].
func (m *Metrics) ListenerConnected(up bool) {
	m.listener.Set(0)
	if up {
		m.listener.Set(1)
	}
}

// TaskDone implements [engine.Observer].
func (m *Metrics) TaskDone(task string, err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.tasks.WithLabelValues(task, result).Inc()
}

// OperatorAction counts an act; result is done or refused.
func (m *Metrics) OperatorAction(action, result string) {
	m.acts.WithLabelValues(action, result).Inc()
	if action == "replay" && result == "refused" {
		m.dlqReplays.WithLabelValues("refused").Inc()
	}
}

// RateLimited counts a request refused for their number; class is token or anonymous.
func (m *Metrics) RateLimited(class string) { m.rateLimited.WithLabelValues(class).Inc() }

// Request counts a request by its route's template, never by its path.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Observe(took.Seconds())
}

// maxNames bounds the different queues and types in labels. Callers may name any,
// and each becomes a set of series that is kept for good.
const maxNames = 300

// otherName stands for the names beyond.
const otherName = "_other"

type labels struct {
	mu            *sync.RWMutex
	queues, kinds map[string]struct{}
}

func newLabels() labels {
	return labels{&sync.RWMutex{}, map[string]struct{}{}, map[string]struct{}{}}
}

func (l *labels) queue(name string) string { return l.bounded(l.queues, name) }
func (l *labels) kind(name string) string  { return l.bounded(l.kinds, name) }

func (l *labels) bounded(seen map[string]struct{}, name string) string {
	l.mu.RLock()
	_, known := seen[name]
	full := len(seen) >= maxNames
	l.mu.RUnlock()
	switch {
	case known:
		return name
	case full:
		return otherName
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(seen) >= maxNames {
		return otherName
	}
	seen[name] = struct{}{}
	return name
}
