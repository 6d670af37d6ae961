"""Many models: a manifest, a plan, engines that run it, a store that loses nothing, and a gate."""
