"""The kubelet adapter: sockets, registration and the DRA service. The only importer of grpc.

`plugin_server.KubeletServer` is the one object that others need.
"""
