# An image for jobs on CPUs: Sporax with parameter servers and cloud checkpoints, as a user without rights. Scripts come from a
# volume, or from `sporax k8s submit`.
# docker build -t sporax-cpu -f deploy/train-cpu.Dockerfile .
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY tools/type_stubs tools/type_stubs
RUN pip install --no-cache-dir --prefix=/install '.[ps,orbax]'

FROM python:3.11-slim
COPY --from=build /install /usr/local
ENV PYTHONUNBUFFERED=1 JAX_PLATFORMS=cpu HOME=/tmp
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["sporax"]
CMD ["info"]
