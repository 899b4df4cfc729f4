package samplejobs

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/net/http/httpguts"
)

// What a payload's headers may hold.
const (
	headersMax      = 50
	headersMaxBytes = 8 << 10
)

// notTheirs are headers that belong to the engine or to the connection. Those
// of the connection (RFC 9110 7.6.1) would let a payload disagree with the
// framing that net/http writes, which is how requests are smuggled.
var notTheirs = []string{
	"user-agent", "host", "content-length", "connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
	"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect",
}

func reserved(lower string) bool {
	return strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "rje-") || slices.Contains(notTheirs, lower)
}

// addHeaders adds a payload's headers. Its errors name the header.
func addHeaders(h http.Header, given map[string]string) error {
	if len(given) > headersMax {
		return fmt.Errorf("headers: more than %d", headersMax)
	}
	size, seen := 0, map[string]bool{}
	for _, name := range sortedKeys(given) {
		value, lower := given[name], strings.ToLower(name)
		field := "headers." + printable(name, 64)
		switch size += len(name) + len(value); {
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Errorf("%s: no valid header name", field)
		case !httpguts.ValidHeaderFieldValue(value):
			return fmt.Errorf("%s: the value holds a line break or another control character", field)
		case reserved(lower):
			return fmt.Errorf("%s: is set by the engine and cannot be given", field)
		case seen[lower]:
			return fmt.Errorf("%s: given twice", field)
		case size > headersMaxBytes:
			return fmt.Errorf("headers: larger than %d bytes together", headersMaxBytes)
		}
		seen[lower] = true
		h.Set(name, value)
	}
	return nil
}

// signingKeys reads whsec_ and base64 of 24 to 64 bytes, the range Standard
// Webhooks gives. Errors name a key by its place, never by its text.
func signingKeys(secrets []string) ([]*standardwebhooks.Webhook, error) {
	var keys []*standardwebhooks.Webhook
	for i, s := range secrets {
		raw, ok := strings.CutPrefix(s, "whsec_")
		if !ok {
			return nil, fmt.Errorf("webhook signing key %d: must begin with whsec_", i+1)
		}
		b, err := base64.StdEncoding.DecodeString(raw)
		if err != nil {
			return nil, fmt.Errorf("webhook signing key %d: not base64", i+1)
		}
		if len(b) < 24 || len(b) > 64 {
			return nil, fmt.Errorf("webhook signing key %d: %d bytes, must be 24 to 64", i+1, len(b))
		}
		key, err := standardwebhooks.NewWebhookRaw(b)
		if err != nil {
			return nil, errors.New("webhook signing keys: " + err.Error())
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// sign sets webhook-signature: one signature for each key, so that a receiver
// may hold the old or the new one while they are rotated. Without keys the
// header is left out.
func (h *webhooks) sign(header http.Header, id string, now time.Time, body []byte) error {
	var signatures []string
	for _, key := range h.keys {
		s, err := key.Sign(id, now, body)
		if err != nil {
			return fmt.Errorf("sign webhook: %w", err)
		}
		signatures = append(signatures, s)
	}
	if len(signatures) > 0 {
		header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	return nil
}
