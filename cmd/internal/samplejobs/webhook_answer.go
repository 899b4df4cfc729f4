package samplejobs

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/reliable-job-engine/reliable-job-engine/engine"
)

// How far a target's Retry-After is obeyed: a zero would be a busy loop, a year
// a lost job.
const (
	retryAfterMin = time.Second
	retryAfterMax = time.Hour
)

// answer is what came back for a webhook.
type answer struct {
	status int
	header http.Header
	text   string
}

// answerError is an answer that is no success.
type answerError struct {
	place  string
	status int
	detail string
}

func (e *answerError) Error() string {
	s := fmt.Sprintf("%s answered %s", e.place, strings.TrimSpace(fmt.Sprintf("%d %s", e.status, http.StatusText(e.status))))
	if e.detail != "" {
		s += ": " + e.detail
	}
	return s
}

// webhookFingerprint groups by target and status, since the text of an answer
// often holds a request id. Other errors take the engine's own.
func webhookFingerprint(err error) string {
	var e *answerError
	if !errors.As(err, &e) {
		return ""
	}
	return fmt.Sprintf("webhook %s answered %d", e.place, e.status)
}

// verdict is nil for 2xx. 410 and the other 4xx are permanent, but for 408 and
// 425, which say "again"; 429 and 503 may say when. The rest is tried again, a
// redirect too: it is never followed, as its target was not the one the payload
// named, but it is often a maintenance page that goes away.
func (a answer) verdict(req *http.Request, now time.Time) error {
	err := &answerError{place: place(req), status: a.status, detail: a.text}
	switch {
	case a.status >= 200 && a.status < 300:
		return nil
	case a.status >= 300 && a.status < 400:
		err.detail = "redirects are not followed"
		if to := a.header.Get("Location"); to != "" {
			err.detail += fmt.Sprintf("; it points to %q", printable(to, 200))
		}
		return err
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable:
		if d, ok := retryAfter(a.header.Get("Retry-After"), now); ok {
			return engine.RetryAfter(err, d)
		}
		return err
	case a.status == http.StatusRequestTimeout, a.status == http.StatusTooEarly:
		return err
	case a.status >= 400 && a.status < 500:
		return engine.Permanent(err)
	}
	return err
}

// retryAfter reads seconds or an HTTP date, from one second to one hour. What is
// neither is no answer, and the job's own backoff holds.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(retryAfterMax/time.Second) {
			return retryAfterMax, true
		}
		return max(time.Duration(seconds)*time.Second, retryAfterMin), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), retryAfterMin), retryAfterMax), true
}
