# The service on a CPU, for one run folder:
#   docker build -t itemfold --build-arg TORCH_INDEX=URL .
#   export ITEMFOLD_API_KEY=$(openssl rand -hex 16)
#   docker run -p 8000:8000 -e ITEMFOLD_API_KEY -v "$PWD/runs/mine:/run-folder:ro" itemfold
# TORCH_INDEX is the index of CPU builds that PyTorch's install page names. Without it the image
# has the CUDA libraries of the default build and is several gigabytes larger.
FROM python:3.12-slim AS build
ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN python -m venv /opt/itemfold \
 && /opt/itemfold/bin/pip install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY src ./src
RUN /opt/itemfold/bin/pip install -c constraints.txt ".[serve]"

FROM python:3.12-slim
LABEL org.opencontainers.image.title="itemfold" \
      org.opencontainers.image.source="https://github.com/itemfold/itemfold" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin itemfold
COPY --from=build /opt/itemfold /opt/itemfold
ENV PATH="/opt/itemfold/bin:$PATH" HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["itemfold", "serve"]
CMD ["/run-folder", "--host", "0.0.0.0", "--port", "8000"]
