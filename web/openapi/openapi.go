// Package openapi holds the description of the API, OpenAPI 3.1, as callers and the
// console read it. It is written by hand in src; its test makes openapi.json of that.
package openapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
)

//go:embed openapi.json
var document []byte

var etag = func() string {
	sum := sha256.Sum256(document)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}()

// Document is the description as JSON. It is not to be changed.
func Document() []byte { return document }

// ETag is the document's entity tag.
func ETag() string { return etag }
