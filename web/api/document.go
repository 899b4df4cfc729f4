package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/reliable-job-engine/reliable-job-engine/web/openapi"
)

// getDocument answers the description of this API.
func (a *API) getDocument(c echo.Context) error {
	if err := readQuery(c).err(); err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set("ETag", openapi.ETag())
	h.Set(echo.HeaderCacheControl, "no-cache")
	if c.Request().Header.Get("If-None-Match") != "" && named(c, "If-None-Match", openapi.ETag()) {
		return c.NoContent(http.StatusNotModified)
	}
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, openapi.Document())
}
