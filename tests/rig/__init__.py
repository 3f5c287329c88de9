"""The black-box rig: boots sandbox-init as a real PID 1 and looks at it from outside."""
