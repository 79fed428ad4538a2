// Package headless is a Chromium without a window for tests of pages: what runs in it, what its console says, and waits
// that end. Tests that use it fail where there is no Chromium, unless SOFTIB_NO_CHROMIUM says that this is known.
package headless
