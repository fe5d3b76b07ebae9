"""How a fit runs: tasks, executors, memory plan, driver loop. It computes no formula itself."""
