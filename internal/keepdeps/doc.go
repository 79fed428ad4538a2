// Package keepdeps holds dependencies that packages under way will use.
package keepdeps

import (
	_ "github.com/chromedp/chromedp"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/common/expfmt"
	_ "github.com/spf13/cobra/doc"
	_ "go.etcd.io/bbolt"
)
