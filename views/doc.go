// Package views draws the console. It is given strings ready to print and knows
// neither the engine nor HTTP.
//
// Each page is a component of its model: OverviewPage, JobsPage, JobPage,
// QueuesPage, QueuePage, TypesPage, TypePage, DeadLettersPage, DeadGroupPageView,
// WorkersPage, WorkerPage, AuditPage, NewJobPage, SystemPage, HelpPage, LoginPage,
// ConfirmPage and ErrorPageView.
//
// A page that follows what happens has one region with the id "live". It asks for
// the page's own address again, and htmx names the region in the HX-Target header
// ("div#live"): such a request is answered by the page's Live component, which is
// what stands inside the region, and brings the banners, the rail's count and the
// clock along: OverviewLive, JobsLive, JobLive, QueuesLive, QueueLive, TypesLive,
// TypeLive, DeadLettersLive, DeadGroupLive, WorkersLive, WorkerLive, AuditLive.
//
// Links that ask before an act are fetched by the script into the one dialog
// (HX-Target "div#dialog-body") and are answered by ConfirmDialog.
//
// A form of a row posts with HX-Target "tr#dead-{id}" and is answered by
// DeadRowSwap, the row as it is now and the flash, also when the action was
// refused (409). Every other form is posted by the browser and answered by a 303.
// A htmx request that must go elsewhere is answered by the HX-Redirect header, for
// fetch follows a 303 by itself; one without a session by 401; and where nothing
// has changed since the HX-PTag header it sends, by 304.
package views
